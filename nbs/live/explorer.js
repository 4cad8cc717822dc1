// Random transformers, block after block: what depth, heads, scales and norms do.
import {button, choice, el, panel, slider} from "./plot.js";
import {key, readable} from "./kernel.js";
import {network} from "./chain.js";

const COUNT = 20;
const SLICE = 40; // milliseconds of work between two looks at the hand
const PATIENCE = 200; // milliseconds until the first networks are shown alone

let rested = 0;
async function rest() {
  if (performance.now() - rested < SLICE) return;
  await new Promise(done => setTimeout(done));
  rested = performance.now();
}

export default async function explorer(box) {
  let asked = 0;
  let work = Promise.resolve(); // one redraw after the other
  let [now, before] = [null, null];
  const wide = x => x === Infinity ? "∞" : String(x);
  const sliders = {
    layers: slider("blocks", [2, 4, 8, 12, 16, 24, 32, 48], 8, String, renew),
    heads: slider("heads H", [1, 2, 4, 8, 16], 2, String, renew),
    tokens: slider("tokens s", [2, 4, 8, 16], 8, String, renew),
    score: slider("score scale τ", [.25, .5, 1, 2, 3, 4, 6, 8], 2, String, renew),
    branch: slider("residual scale σO", [.1, .2, .35, .5, .7, 1, 2], 1, String, renew),
    width: slider("width n", [64, 128, 256, 512, Infinity], Infinity, wide, renew)};
  const norm = choice("norm", ["pre-norm", "post-norm", "no norm"], renew);
  const mlp = choice("MLP", ["with MLP", "without"], renew);
  const mask = choice("mask", ["all to all", "causal"], renew);
  const panels = el("div", {class: "live-panels live-three"});
  const said = el("p", {class: "live-said", "aria-live": "polite"});
  const row = (...boxes) => el("div", {class: "live-controls"}, ...boxes);
  const buttons = [button("new networks", renew), norm.box, mlp.box, mask.box];
  const ranges = Object.values(sliders).map(s => s.box);
  box.append(row(...buttons), panels, row(...ranges), said);

  function renew() {
    const wish = box.dataset.asked = ++asked;
    return work = work.then(() => wish === asked && redraw(wish));
  }

  async function redraw(wish) { // shown as it grows, and then gives way to a newer one
    const start = performance.now();
    const t = {mlp: mlp.value === "with MLP", causal: mask.value === "causal"};
    for (const [name, {value}] of Object.entries({norm, ...sliders})) t[name] = value;
    if (now && JSON.stringify(t) !== JSON.stringify(now.t)) before = now;
    now = {t, networks: []};
    for (let shown = start; now.networks.length < COUNT;) {
      now.networks.push(await network(t, rest));
      if (now.networks.length < COUNT && performance.now() - shown < PATIENCE) continue;
      draw();
      if (wish !== asked) break;
      shown = performance.now();
    }
    Object.assign(box.dataset, {drawn: wish, milliseconds: performance.now() - start});
  }

  const mean = ({networks}, name) => networks[0][name].map((_, l) =>
    networks.reduce((sum, found) => sum + found[name][l], 0)/networks.length);

  function curves(name, title, y, log = false) {
    const P = panel({
      x: [0, now.t.layers], y, log, title, xlabel: "block", width: 300,
      height: innerWidth < 600 ? 150 : 240, describe: `${title}, block by block`});
    const line = (values, {layers}, kind) =>
      P.line(values.map((_, k) => k + layers + 1 - values.length), values, kind);
    for (const found of now.networks) line(found[name], now.t, "past");
    if (before) line(mean(before, name), before.t, "gaussian");
    line(mean(now, name), now.t, "law");
    return el("figure", {}, P.root);
  }

  function draw() {
    const {t, networks} = now;
    const least = Math.min(0, ...networks.flatMap(found => found.cosine));
    const powers = networks.flatMap(found => found.gradient).map(Math.log10);
    const range = [Math.min(...powers), Math.max(...powers) + 1].map(Math.floor);
    const uniform = Math.log(t.tokens);
    const names = [["past", `${networks.length} networks`], ["law", "their mean"],
                   ["gaussian", "mean at the setting before"]];
    panels.replaceChildren(
      curves("cosine", "mean cosine of tokens", [Math.floor(5*least)/5, 1.02]),
      curves("entropy", "entropy of attention", [0, 1.05*uniform]),
      curves("gradient", "gradient of tokens", range.map(k => 10**k), true),
      key(names.slice(0, before ? 3 : 2)));
    const [cosine, entropy] = ["cosine", "entropy"].map(name => mean(now, name).at(-1));
    const gradient = mean(now, "gradient");
    said.textContent = `After ${t.layers} blocks: mean cosine ${cosine.toFixed(2)} `
      + `(1: all tokens alike), entropy ${entropy.toFixed(2)} (at most `
      + `${uniform.toFixed(2)}); on its way back to the start the gradient becomes `
      + `${readable(gradient[0]/gradient.at(-1))} times as large.`;
    Object.assign(box.dataset,
      {...t, networks: networks.length, cosine, entropy, gradient: gradient[0]});
  }

  await renew();
}
