// Averages over the coordinates of single networks, side by side: an MLP and attention.
// The running example of the essay: one head on four independent unit tokens, ψ = cos.
import {button, caption, chi2, el, linspace, normal, panel, slider} from "./plot.js";
import {key} from "./kernel.js";

const CAPTION = "Each dot is one network: the average of cos(y) over the n coordinates of its output y. MLP: y = W² tanh(W¹x) on one unit token. "
  + "Attention: one head on four independent unit tokens, scores of standard deviation 2. Move the width: the spread of the MLPs vanishes, and the spread of the attention layers remains.";
const s = 4, τ = 2, NETWORKS = 100, LOWEST = .2, HIGHEST = 1.05;
const widths = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const times = (n, make) => Array.from({length: n}, (_, k) => make(k));
const dot = (a, b) => a.reduce((t, x, k) => t + x*b[k], 0);

// Lower triangular factor of a Wishart matrix of size s with n degrees of freedom, over n.
const triangle = n => times(s, i => times(s, j => j < i ? normal()/Math.sqrt(n) : j > i ? 0 : Math.sqrt(chi2(n - i)/n)));

function averageOfCosines(v, n) { // of n Gaussians of variance v
  let t = 0;
  for (let α = 0; α < n; α++) t += Math.cos(Math.sqrt(v)*normal());
  return t/n;
}

// One attention layer of width n, exactly in law: the scores of its first query, their weights, the variance of its output.
export function attentionAverage(n) {
  const L = triangle(n), query = times(s, () => τ*L[0][0]*normal()), keys = triangle(n).map(row => dot(row, query));
  const e = L.map(row => Math.exp(dot(row, keys))), total = e.reduce((a, b) => a + b);
  const mixed = times(s, k => e.reduce((t, x, j) => t + x/total*L[j][k], 0));
  const values = triangle(n), y = times(s, k => values.reduce((t, row, j) => t + mixed[j]*row[k], 0));
  return averageOfCosines(dot(y, y), n);
}

// An MLP y = W² tanh(W¹ x) of width n on one unit token.
export function mlpAverage(n) {
  const r = Math.sqrt(chi2(n)/n);
  let q = 0;
  for (let β = 0; β < n; β++) q += Math.tanh(r*normal())**2/n;
  return averageOfCosines(q, n);
}

const spread = x => {
  const mean = x.reduce((a, b) => a + b)/x.length;
  return Math.sqrt(x.reduce((t, a) => t + (a - mean)**2, 0)/(x.length - 1));
};

export default async function averages(box) {
  const n = slider("width n", widths, 16, String, () => draw());
  const panels = el("div", {class: "live-panels"}), said = el("p", {class: "live-said", "aria-live": "polite"});
  box.append(panels, el("div", {class: "live-controls"}, n.box, button("new networks", () => draw())), said, caption(CAPTION));

  function strip(name, found) {
    const P = panel({x: [0, NETWORKS + 1], y: [LOWEST, HIGHEST], title: name, xlabel: "network", ylabel: "average of cos(y)",
      describe: `Averages of ${NETWORKS} networks: ${name}`});
    P.dots(linspace(1, NETWORKS, NETWORKS), found.map(x => Math.max(x, LOWEST)), "dot", 3);
    return el("figure", {}, P.root, key([["dot", `${NETWORKS} networks of width ${n.value}`]]));
  }

  function draw() {
    const mlp = times(NETWORKS, () => mlpAverage(n.value)), attention = times(NETWORKS, () => attentionAverage(n.value));
    panels.replaceChildren(strip("MLP", mlp), strip("attention", attention));
    const [a, b] = [mlp, attention].map(x => spread(x).toFixed(3));
    said.textContent = `Standard deviation over the networks at width ${n.value}: MLP ${a}, attention ${b}.`;
    Object.assign(box.dataset, {mlp: a, attention: b, width: n.value});
  }

  draw();
}
