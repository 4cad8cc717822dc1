// Random transformers, block after block: what depth, heads, scales and norms do.
import {button, choice, el, panel, slider} from "./plot.js";
import {key, readable} from "./kernel.js";
import {networks} from "./chain.js";

const CAPTION = ""
  + "s independent tokens of length one enter; heads have width n/H, MLPs 4n "
  + "units with ReLU, norms are LayerNorms. τ = σQσK is the standard deviation of "
  + "a score between tokens of length one, σO the size of a branch on the stream. "
  + "Thin lines: 20 networks; bold: their mean; dashed: the mean at the setting "
  + "before. Cosines are averaged over pairs of tokens, entropies over heads and "
  + "rows; gradients are norms, those of a random linear function of the last "
  + "token. Your browser draws from the exact law at this width; only at n = ∞ 64 "
  + "units of an MLP stand for all in one inner product on the way back, right in "
  + "mean and covariance.";
const COUNT = 20;
const SLICE = 12; // milliseconds of work between two looks at the hand
const PATIENCE = 200; // milliseconds until the first networks are shown alone
const LARGEST = 1e154; // what is larger is drawn here
const AT_A_TIME = 2**19; // numbers that a batch keeps, roughly
const GRADIENTS = {
  tokens: "stream", "W of queries": "queries", "W of values": "values"};

const {port1, port2} = new MessageChannel();
const pause = () => new Promise(done => {
  port1.onmessage = done;
  port2.postMessage(0);
});

function batch(t) { // networks side by side
  const units = t.mlp && t.width < Infinity ? 4*t.width : 64;
  const numbers = t.layers*t.tokens*(6*t.heads*t.tokens + units);
  return Math.max(1, Math.min(COUNT, Math.floor(AT_A_TIME/numbers)));
}

function size(name, x) { // of a gradient: its norm
  if (name === "cosine" || name === "entropy") return x;
  const root = Math.sqrt(Math.max(x, 0));
  return Number.isFinite(root) ? root : LARGEST;
}

const mean = lines =>
  lines[0].map((_, l) => lines.reduce((t, x) => t + x[l], 0)/lines.length);

export default async function explorer(box) {
  let asked = 0;
  let busy = false;
  let now = null;
  let before = null;
  const wide = x => x === Infinity ? "∞" : String(x);
  const sliders = {
    layers: slider("blocks", [2, 4, 8, 12, 16, 24, 32, 48], 8, String, renew),
    heads: slider("heads H", [1, 2, 4, 8, 16], 2, String, renew),
    tokens: slider("tokens s", [2, 4, 8, 16], 8, String, renew),
    score: slider("score scale τ", [.25, .5, 1, 2, 3, 4, 6, 8], 2, String, renew),
    branch: slider("residual scale σO", [.1, .2, .35, .5, .7, 1, 2], 1, String, renew),
    width: slider("width n", [64, 128, 256, 512, Infinity], Infinity, wide, renew)};
  const choices = {
    norm: choice("norm", ["pre", "post", "none"], renew),
    mlp: choice("MLP", ["with MLP", "without"], renew),
    causal: choice("mask", ["all to all", "causal"], renew)};
  const gradient = choice("gradient", Object.keys(GRADIENTS), () => draw());
  const panels = el("div", {class: "live-panels live-three"});
  const said = el("p", {class: "live-said", "aria-live": "polite"});
  const boxes = set => Object.values(set).map(control => control.box);
  box.append(
    el("div", {class: "live-controls live-buttons"},
       button("new networks", renew), el("span", {}, "norm ", choices.norm.box),
       choices.mlp.box, choices.causal.box,
       el("span", {}, "gradient of ", gradient.box)),
    panels, el("div", {class: "live-controls"}, ...boxes(sliders)), said,
    el("p", {class: "live-caption"}, CAPTION));

  function settings() {
    const t = Object.fromEntries(Object.entries(sliders).map(([k, s]) => [k, s.value]));
    const [norm, mlp, mask] = Object.values(choices).map(c => c.value);
    return {...t, norm, mlp: mlp === "with MLP", causal: mask === "causal"};
  }

  // One redraw after the other; one that takes long gives way to a newer wish.
  async function renew() {
    box.dataset.asked = ++asked;
    if (busy) return;
    busy = true;
    for (let drawn = 0; drawn !== asked;) {
      drawn = asked;
      const start = performance.now();
      await redraw(() => drawn !== asked && performance.now() - start > PATIENCE);
      const milliseconds = performance.now() - start;
      Object.assign(box.dataset, {drawn, milliseconds});
    }
    busy = false;
  }

  async function redraw(stop) {
    const t = settings();
    if (now?.done && JSON.stringify(t) !== JSON.stringify(now.t)) before = now;
    const found = {t, cosine: [], entropy: [], stream: [], queries: [], values: []};
    let slept = performance.now();
    let shown = slept;
    for (let count = 0; count < COUNT;) {
      const b = Math.min(batch(t), COUNT - count);
      const work = networks(t, b);
      let state = work.next();
      for (; !state.done; state = work.next()) {
        if (performance.now() - slept < SLICE) continue;
        await pause();
        if (stop()) return;
        slept = performance.now();
      }
      for (const [name, blocks] of Object.entries(state.value)) {
        for (let k = 0; k < b; k++) found[name].push(blocks.map(x => size(name, x[k])));
      }
      count += b;
      found.done = count === COUNT;
      if (!found.done && performance.now() - shown < PATIENCE) continue;
      now = found;
      draw();
      shown = performance.now();
    }
  }

  function curve(name, title, range, log = false) {
    const P = panel({
      x: [0, now.t.layers], y: range, log, title, xlabel: "block",
      width: 300, height: innerWidth < 600 ? 150 : 240,
      describe: `${title}, block by block, of ${now[name].length} networks`});
    const show = (t, ys, kind) =>
      P.line(ys.map((_, k) => k + t.layers + 1 - ys.length), ys, kind);
    for (const ys of now[name]) show(now.t, ys, "past");
    if (before) show(before.t, mean(before[name]), "gaussian");
    show(now.t, mean(now[name]), "law");
    return el("figure", {}, P.root);
  }

  function draw() {
    const name = GRADIENTS[gradient.value];
    const all = now[name].flat().filter(x => x > 0);
    const top = Math.max(...all, 1e-300);
    const low = Math.max(Math.min(...all), 1e-9*top);
    const powers = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(top) + 1e-9)];
    const range = powers.map(k => 10**k);
    const least = Math.min(0, Math.floor(5*Math.min(...now.cosine.flat()))/5);
    const uniform = Math.log(now.t.tokens);
    const lines = [["past", `${now.cosine.length} networks`], ["law", "their mean"]];
    if (before) lines.push(["gaussian", "mean at the setting before"]);
    panels.replaceChildren(
      curve("cosine", "mean cosine of tokens", [least, 1.02]),
      curve("entropy", "entropy of attention", [0, 1.05*uniform]),
      curve(name, `gradient of ${gradient.value}`, range, true), key(lines));
    const [cosine, entropy, norms] = ["cosine", "entropy", name].map(k => mean(now[k]));
    said.textContent = `After ${now.t.layers} blocks the mean cosine of two tokens is `
      + `${cosine.at(-1).toFixed(2)} (1: all alike); a row of attention has entropy `
      + `${entropy.at(-1).toFixed(2)} (at most ${uniform.toFixed(2)}); the gradient is `
      + `${readable(norms[0]/norms.at(-1))} times as large at the start as at the end.`;
    Object.assign(box.dataset, {...now.t, networks: now.cosine.length,
      cosine: cosine.at(-1), entropy: entropy.at(-1), gradient: norms[0]});
  }

  await renew();
}
