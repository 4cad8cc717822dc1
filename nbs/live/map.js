// The map of regimes: score standard deviation × heads, coloured by how far from Gaussian.
import {bell, choice, el, label, linspace, narrow, panel, slider, svg} from "./plot.js";
import {key, lawOf, readable} from "./kernel.js";

const LEFT = 52, BOTTOM = 44, TOP = 8, ROW = 34;

// Where networks that people use stand: name, score standard deviation, heads.
const KNOWN = [["GPT-2 small", .31, 12], ["Llama 7B", 1.64, 32], ["PyTorch's default", .5, 8]];

// How strongly a value is coloured: both scales are logarithmic, and their legend shows these values.
const SCALES = {"beyond 6 sd": [1, 1000, [1, 3, 10, 30, 100, 300, 1000]], kurtosis: [.003, 3, [.003, .01, .03, .1, .3, 1, 3]]};
export function shade(colour, x) {
  const [least, most] = SCALES[colour];
  return Math.min(1, Math.max(0, Math.log(Math.max(x, least)/least)/Math.log(most/least)));
}

// Where a first-order correction can be believed: it changes the density by less than a half.
export const valid = (f, change) => Math.abs(change) < f/2;

// f₁ of the first-order correction at the points y, where it has been computed.
export const correction = (map, τ, H, s) => map.f1[`${s},${H},${τ}`];

export default async function regimes(box, data) {
  const [table, map] = await Promise.all([data("kernel.json"), data("map.json")]);
  const taus = table.tau.filter(t => t > 0), heads = table.heads;
  let at = {τ: 2, H: 1};
  const colour = choice("colour", ["beyond 6 sd", "kurtosis"], () => draw());
  const s = slider("tokens", table.tokens, 4, String, () => draw());
  const n = slider("width of the curve", [...map.widths, Infinity], Infinity, x => x === Infinity ? "∞" : String(x), () => draw());
  const scale = () => el("ul", {class: "live-scale", "aria-label": "colour scale"}, el("li", {class: "live-scale-name"}, colour.value === "kurtosis" ? "excess kurtosis" : "times as likely beyond 6 sd"),
    ...SCALES[colour.value][2].map(x => {
      const root = svg("svg", {viewBox: "0 0 24 14", width: 24, height: 14, "aria-hidden": "true"});
      root.append(svg("rect", {x: 0, y: 0, width: 24, height: 14, class: "live-cell", "fill-opacity": shade(colour.value, x)}));
      return el("li", {}, root, label(x));
    }));
  const grid = el("div", {class: "live-map"}), panels = el("div", {class: "live-panels"});
  const said = el("p", {class: "live-said", "aria-live": "polite"});
  box.append(grid, el("div", {class: "live-controls"}, colour.box, s.box), said, panels, el("div", {class: "live-controls"}, n.box));

  const value = (τ, H) => { const l = lawOf(table, τ, H, s.value); return colour.value === "kurtosis" ? l.kurtosis : l.ratio; };
  const strength = x => shade(colour.value, x);

  function cells() {
    const W = narrow() ? 320 : 560, H = TOP + ROW*heads.length + BOTTOM, [first, last] = [taus[0], taus.at(-1)].map(Math.log);
    const root = svg("svg", {viewBox: `0 0 ${W} ${H}`, class: "live-panel", tabindex: 0, role: "application",
      "aria-label": "Map of score standard deviation and heads; arrow keys move the choice"});
    const px = τ => LEFT + (W - LEFT - 8)*(.04 + .92*(Math.log(τ) - first)/(last - first)); // logarithmic
    const left = k => k ? px(Math.sqrt(taus[k - 1]*taus[k])) : LEFT, right = k => k + 1 < taus.length ? left(k + 1) : W - 8;
    const top = j => TOP + ROW*(heads.length - 1 - j), py = h => TOP + ROW*(heads.length - .5 - Math.log2(h));
    taus.forEach((τ, k) => heads.forEach((h, j) => {
      const cell = svg("rect", {x: left(k), y: top(j), width: right(k) - left(k) + .3, height: ROW + .3, class: "live-cell", "fill-opacity": strength(value(τ, h))});
      cell.addEventListener("pointerdown", () => { at = {τ, H: h}; draw(true); });
      root.append(cell);
    }));
    root.append(svg("rect", {x: left(taus.indexOf(at.τ)), y: top(heads.indexOf(at.H)), width: right(taus.indexOf(at.τ)) - left(taus.indexOf(at.τ)), height: ROW, class: "live-chosen"}));
    heads.forEach((h, j) => root.append(svg("text", {x: LEFT - 6, y: top(j) + ROW/2 + 4, "text-anchor": "end"}, String(h))));
    for (const τ of [.25, .5, 1, 2, 5, 10]) if (τ >= first && taus.includes(τ)) root.append(svg("text", {x: px(τ), y: H - BOTTOM + 17, "text-anchor": "middle"}, label(τ)));
    for (const [name, τ, h] of KNOWN) root.append(svg("circle", {cx: px(τ), cy: py(h), r: 4, class: "live-dot"}), svg("text", {x: px(τ) + 8, y: py(h) + 4}, name));
    root.append(svg("text", {x: (LEFT + W)/2, y: H - 6, "text-anchor": "middle"}, "score standard deviation"),
                svg("text", {x: 0, y: 0, "text-anchor": "middle", transform: `translate(12 ${TOP + ROW*heads.length/2}) rotate(-90)`}, "heads"));
    root.addEventListener("keydown", e => {
      const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[e.key];
      if (!step) return;
      e.preventDefault();
      const k = taus.indexOf(at.τ) + step[0], j = heads.indexOf(at.H) + step[1];
      if (taus[k] !== undefined && heads[j] !== undefined) { at = {τ: taus[k], H: heads[j]}; draw(true); }
    });
    return root;
  }

  function draw(focus = false) {
    const law = lawOf(table, at.τ, at.H, s.value), f1 = correction(map, at.τ, at.H, s.value);
    grid.replaceChildren(cells(), scale(), el("p", {class: "live-corners"},
      "Left: scores vanish, tokens are averaged, Gaussian. Top: many heads, Gaussian. Bottom, middle to right: few heads that choose, far from Gaussian; far right: one token takes all, and the weight of the winner is nearly constant again."));
    if (focus) grid.querySelector("svg").focus();
    const sd = Math.sqrt(law.mean), ys = map.y, xs = linspace(-7, 7, 141).map(y => y*sd);
    const top = 1.5*law.density(0);
    const P = panel({x: [-7*sd, 7*sd], y: [1e-10*top, top], log: true, xlabel: "output y", ylabel: "density",
      describe: "Density at the chosen place: limit, Gaussian of the same variance, and first correction at finite width"});
    P.line(xs, xs.map(y => bell(y, law.mean)), "gaussian");
    P.line(xs, xs.map(law.density), "law");
    const entries = [["law", "limit"], ["gaussian", "Gaussian, same variance"]];
    if (f1 && n.value < Infinity) {
      const mirrored = [...ys.slice(1).map(y => -y).reverse(), ...ys], g = [...f1.slice(1).reverse(), ...f1];
      const change = g.map(x => x/n.value), good = mirrored.map((y, k) => valid(law.density(y*sd), change[k]));
      const at = k => [mirrored[k]*sd, Math.max(law.density(mirrored[k]*sd) + change[k], 1e-300)];
      for (let k = 0; k + 1 < mirrored.length; k++) {
        const [[x, f], [x1, f1]] = [at(k), at(k + 1)];
        P.line([x, x1], [f, f1], good[k] && good[k + 1] ? "now" : "faint");
      }
      if (good.some(x => x)) entries.push(["now", `width ${n.value}: f + f₁/n`]);
      if (good.some(x => !x)) entries.push(["faint", "not valid here: f₁/n is above f/2"]);
      box.dataset.valid = good.filter(x => x).length/good.length;
    }
    panels.replaceChildren(el("figure", {}, P.root, key(entries)));
    said.textContent = `Score sd ${at.τ}, ${at.H} ${at.H === 1 ? "head" : "heads"}, ${s.value} tokens: excess kurtosis ${law.kurtosis.toFixed(3)}, `
      + `beyond 6 sd ${readable(law.ratio)} times as likely as the Gaussian.`
      + (n.value < Infinity && !f1 ? ` The correction at finite width is stored for ${map.stored} only.` : "");
    Object.assign(box.dataset, {kurtosis: law.kurtosis, ratio: law.ratio, tau: at.τ, heads: at.H, tokens: s.value});
  }

  draw();
}
