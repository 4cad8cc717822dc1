// Theorem 1, moving: averages over the coordinates of single networks as the width grows.
// Two independent unit tokens, one head, score standard deviation 2; ψ = cos.
import {button, caption, chi2, choice, el, enable, linspace, normal, panel, slider} from "./plot.js";
import {key} from "./kernel.js";

const CAPTION = "ψ = cos, averaged over the n coordinates of one output. Attention: one head on two independent unit tokens, scores of standard deviation τ = 2; "
  + "the limit is Ψ(δ) = E ψ(y) = exp(−v/2) with v = (1 + tanh²(δ/2))/2. MLP: y = W² tanh(W¹x) on one unit token. The switch of the scores' scale has no meaning without scores.";
const τ = 2, δs = linspace(-8, 8, 65), LINES = 12;
const widths = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

export const variance = δ => (1 + Math.tanh(δ/2)**2)/2; // v of weights (w, 1 − w)
export const Ψ = δ => Math.exp(-variance(δ)/2); // E cos(y), y ~ N(0, v)

// Lower triangular factor of a 2×2 Wishart matrix with n degrees of freedom, over n.
const triangle = n => [Math.sqrt(chi2(n)/n), normal()/Math.sqrt(n), Math.sqrt(chi2(n - 1)/n)];
const times = ([a, b, c], [d, e, f]) => [a*d, b*d + c*e, c*f];

// One network of width n, exactly: the score difference of its first query, and the
// coordinates of its two value vectors.
export function attentionNetwork(n, scale) {
  const L = triangle(n), N = [normal(), normal(), normal(), normal()], T = triangle(n);
  // row 1 of L N Tᵀ, times Lᵀ: the scores of query 1 with both keys
  const q = [L[0]*N[0], L[0]*N[1]], r = [q[0]*T[0], q[0]*T[1] + q[1]*T[2]];
  const p = [r[0]*L[0], r[0]*L[1] + r[1]*L[2]];
  const δ = τ*(p[0] - p[1])*(scale === "1/n" ? 1/Math.sqrt(n) : 1);
  const M = times(L, triangle(n)), x = new Float64Array(n), y = new Float64Array(n);
  for (let α = 0; α < n; α++) {
    const z = normal();
    x[α] = M[0]*z;
    y[α] = M[1]*z + M[2]*normal();
  }
  const F = δ => {
    const w = 1/(1 + Math.exp(-δ));
    let t = 0;
    for (let α = 0; α < n; α++) t += Math.cos(w*x[α] + (1 - w)*y[α]);
    return t/n;
  };
  return {δ, F};
}

// An MLP y = W² tanh(W¹ x) of width n: no scores, and nothing depends on δ.
export function mlpNetwork(n) {
  const r = Math.sqrt(chi2(n)/n);
  let q = 0, t = 0;
  for (let β = 0; β < n; β++) q += Math.tanh(r*normal())**2/n;
  for (let α = 0; α < n; α++) t += Math.cos(Math.sqrt(q)*normal());
  return {δ: null, F: () => t/n};
}

function erf(x) { // Abramowitz and Stegun 7.1.26
  const t = 1/(1 + .3275911*Math.abs(x));
  const y = 1 - ((((1.061405429*t - 1.453152027)*t + 1.421413741)*t - .284496736)*t + .254829592)*t*Math.exp(-x*x);
  return x < 0 ? -y : y;
}

// Pr(Ψ(δ) ≤ f) for the limit's δ ~ N(0, 2τ²).
export function limitCdf(f) {
  if (f <= 0) return 0; // the axis of a narrow network may begin below zero
  const v = -2*Math.log(f);
  if (v <= .5) return 1;
  if (v >= 1) return 0;
  return 1 - erf(2*Math.atanh(Math.sqrt(2*v - 1))/(2*τ));
}

// Standard deviation of Ψ over networks, by a sum over a grid.
export const spreadΨ = (() => {
  const grid = linspace(-16, 16, 257), weight = grid.map(δ => Math.exp(-((δ/(2*τ))**2)));
  const all = weight.reduce((a, b) => a + b);
  const moment = k => grid.reduce((a, δ, i) => a + weight[i]*Ψ(δ)**k, 0)/all;
  return Math.sqrt(moment(2) - moment(1)**2);
})();

export default async function theorem(box, data) {
  const {mlp} = await data("theorem.json"); // E cos(y) of the MLP, from the library
  let networks = [], sample = [];
  const n = slider("width n", widths, 16, String, () => renew());
  const kind = choice("network", ["attention", "MLP"], () => renew());
  const scale = choice("scores scaled by", ["1/√n", "1/n"], () => renew());
  const panels = el("div", {class: "live-panels"}), said = el("p", {class: "live-said", "aria-live": "polite"});
  box.append(el("div", {class: "live-controls"}, button("new networks", () => renew()), kind.box, scale.box), panels,
             el("div", {class: "live-controls"}, n.box), said, caption(CAPTION));

  const make = () => kind.value === "attention" ? attentionNetwork(n.value, scale.value) : mlpNetwork(n.value);
  function renew() {
    enable(scale, kind.value === "attention");
    networks = Array.from({length: LINES}, make);
    sample = Array.from({length: 300}, () => { const m = make(); return m.F(m.δ); });
    draw();
  }

  function draw() {
    const attention = kind.value === "attention", limit = δ => attention ? Ψ(δ) : mlp;
    const lines = networks.map(m => δs.map(m.F)), low = Math.min(.2, Math.floor(10*Math.min(...lines.flat()))/10);
    const P = panel({x: [-8, 8], y: [low, 1.05], xlabel: attention ? "score difference δ = p₁ − p₂" : "(no scores: the place along this axis means nothing)",
      ylabel: "average of cos(y)", describe: "Averages of single networks as functions of the score difference, and their limit"});
    for (const line of lines) P.line(δs, line, "past");
    P.line(δs, δs.map(limit), "law");
    networks.forEach((m, k) => { const x = m.δ ?? -7 + 14*k/(LINES - 1); P.dots([Math.max(-7.9, Math.min(7.9, x))], [m.F(x)], "dot", 4); });
    panels.replaceChildren(el("figure", {}, P.root, key([["past", "one network, all scores it might have"], ["law", "the limit Ψ"], ["dot", "where its own scores put it"]])), side(attention));
    const mean = sample.reduce((a, b) => a + b)/sample.length;
    const sd = Math.sqrt(sample.reduce((a, b) => a + (b - mean)**2, 0)/(sample.length - 1));
    const random = attention && scale.value === "1/√n";
    const end = random ? spreadΨ : 0;
    said.textContent = `Standard deviation of the average over networks at width ${n.value}: ${sd.toFixed(3)}, in the limit ${end.toFixed(3)}. `
      + (random ? "The curves agree ever better; the dots stay where chance has put them."
        : "Every wide network gives the same number.");
    Object.assign(box.dataset, {mean, sd, width: n.value, low, lowest: Math.min(...lines.flat()), highest: Math.max(...lines.flat())});
  }

  function side(attention) {
    const low = Math.min(.2, Math.floor(10*Math.min(...sample))/10), bins = Math.round((1.05 - low)/.025);
    const edges = linspace(low, 1.05, bins + 1), counts = Array(bins).fill(0);
    for (const f of sample) counts[Math.min(bins - 1, Math.floor((f - low)/(1.05 - low)*bins))]++;
    const shares = counts.map(c => c/sample.length);
    const exact = edges.slice(1).map((b, k) => limitCdf(b) - limitCdf(edges[k]));
    const random = attention && scale.value === "1/√n", top = 1.15*Math.max(...shares, ...(random ? exact : [0]));
    const P = panel({x: [low, 1.05], y: [0, top], xlabel: "average of cos(y)", ylabel: "share of networks",
      describe: "Distribution of the average over networks"});
    P.bars(edges, shares, "bar");
    box.dataset.top = top;
    if (random) P.line(edges.slice(1).map((b, k) => (b + edges[k])/2), exact, "law");
    else { const f = attention ? Ψ(0) : mlp; P.line([f, f], [0, top], "law"); }
    return el("figure", {}, P.root, key([["bar", `${sample.length} networks`], ["law", "their limit"]]));
  }

  renew();
}
