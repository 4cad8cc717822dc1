// The random-kernel machine: one infinitely wide attention layer, network by network.
import {bell, button, caption, choice, el, label, linspace, narrow, normal, panel, slider, still, svg} from "./plot.js";

const CAPTION = "One infinitely wide layer, network by network. Its random scores give the attention weights A of each head (here the first); "
  + "they give the covariance of the outputs, S = A Aᵀ, a mean over heads; and v, the first entry of S, is the variance of output 1, which is Gaussian "
  + "in this network. Averaged over networks it is not: the black curve, the limit. No network has a larger v than one that looks at a single token: "
  + "the ceiling v = 1. On the logarithmic axis the tails show, and thin lines for layers of width 16, 64 and 256 (stored for 2 and 4 tokens, up to 8 heads): "
  + "they approach the black curve, not the dashed Gaussian.";
const HEIGHT = narrow() ? {linear: 180, logarithmic: 206, share: 104} : {linear: 280, logarithmic: 280, share: 280}; // both panels fit on one screen of a phone
const KEPT = 40, FIRST = 6, Y = linspace(-4, 4, 161);

// Scores of one head are independent N(0, τ²) (unit tokens), its weights their softmax.
export function drawWeights(τ, s) {
  return Array.from({length: s}, () => {
    const p = Array.from({length: s}, () => τ*normal()), top = Math.max(...p);
    const e = p.map(x => Math.exp(x - top)), total = e.reduce((a, b) => a + b);
    return e.map(x => x/total);
  });
}

const product = A => A.map(a => A.map(b => a.reduce((t, x, k) => t + x*b[k], 0)));

// Covariance S = (1/H) Σ A Aᵀ of the outputs, and the weights of the first head.
export function drawNetwork(τ, H, s) {
  const heads = Array.from({length: H}, () => drawWeights(τ, s)), S = product(heads[0]);
  for (const A of heads.slice(1)) product(A).forEach((row, i) => row.forEach((x, j) => { S[i][j] += x; }));
  return {A: heads[0], S: S.map(row => row.map(x => x/H))};
}

// v = S₁₁ alone: the first row of every head.
export function drawVariance(τ, H, s) {
  let v = 0;
  for (let a = 0; a < H; a++) {
    let top = 0, one = 0, two = 0;
    const p = Array.from({length: s}, () => τ*normal());
    top = Math.max(...p);
    for (const x of p) { const e = Math.exp(x - top); one += e; two += e*e; }
    v += two/one**2;
  }
  return v/H;
}

// The library's law of v at these settings: Gauss nodes and weights, and what follows.
export function lawOf(table, τ, H, s) {
  const k = table.tau.indexOf(τ), {v, w, kurtosis, ratio} = table.laws[`${s},${H}`][k];
  const mean = v.reduce((t, x, i) => t + w[i]*x, 0);
  return {v, w, kurtosis, ratio, mean, density: y => v.reduce((t, x, i) => t + w[i]*bell(y, x), 0)};
}

function matrix(rows, name, top) {
  const s = rows.length, c = 120/s, root = svg("svg", {viewBox: "0 0 122 122", role: "img", "aria-label": name, class: "live-matrix"});
  root.append(svg("rect", {x: .5, y: .5, width: 121, height: 121, class: "live-frame"}));
  rows.forEach((row, i) => row.forEach((x, j) => root.append(svg("rect", {
    x: 1 + j*c, y: 1 + i*c, width: c, height: c, class: "live-cell", "fill-opacity": Math.min(Math.abs(x)/top, 1)}))));
  return el("figure", {}, root, el("figcaption", {}, name));
}

export const readable = x => x >= 1e4 ? label(+x.toPrecision(2)) : x >= 10 ? x.toFixed(0) : x.toFixed(2);

// Densities of the finite widths that are stored at these settings, [width, y => density].
export function finiteLaws(finite, table, τ, H, s) {
  const laws = finite.laws[`${s},${H}`]?.[table.tau.indexOf(τ)] ?? [];
  return laws.map(({v, w}, k) => [finite.widths[k], y => v.reduce((t, x, i) => t + w[i]*bell(y, x), 0)]);
}

export default async function kernel(box, data) {
  const [table, finite] = await Promise.all([data("kernel.json"), data("finite.json")]);
  let networks = [], variances = [], running = null;
  const restart = () => {
    networks = [];
    variances = Array.from({length: 1500}, () => drawVariance(τ.value, H.value, s.value));
    for (let k = 0; k < FIRST; k++) add();
    draw();
  };
  const τ = slider("score standard deviation", table.tau, 2, x => x.toFixed(2), restart);
  const H = slider("heads", table.heads, 1, String, restart);
  const s = slider("tokens", table.tokens, 4, String, restart);
  const axis = choice("vertical axis", ["linear", "logarithmic"], () => draw(), box.dataset.axis);
  const add = () => { networks.push(drawNetwork(τ.value, H.value, s.value)); if (networks.length > 400) networks.shift(); };
  const next = () => { add(); draw(); };
  const many = button("run", () => {
    if (running) { clearInterval(running); running = null; }
    else if (still()) for (let k = 0; k < 40; k++) next();
    else running = setInterval(next, 80);
    many.textContent = running ? "stop" : "run";
  });
  const matrices = el("div", {class: "live-matrices"}), panels = el("div", {class: "live-panels"});
  const said = el("p", {class: "live-said", "aria-live": "polite"});
  box.append(el("div", {class: "live-controls live-buttons"}, button("new network", next), many, axis.box),
             el("div", {class: "live-stage"}, panels, matrices),
             el("div", {class: "live-controls"}, τ.box, H.box, s.box), said, caption(CAPTION));

  function draw() {
    const law = lawOf(table, τ.value, H.value, s.value), log = axis.value === "logarithmic";
    const {A, S} = networks.at(-1), v = S[0][0], sd = Math.sqrt(law.mean), reach = 7*sd;
    matrices.replaceChildren(matrix(A, "weights A", 1), matrix(S, "covariance S", Math.max(...S.map((r, i) => r[i]))));
    panels.replaceChildren(bells(law, v, sd, reach, log), spread(law, v));
    said.textContent = `This network: v = ${v.toFixed(3)}, between ${(1/s.value).toFixed(3)} (all tokens alike) and 1 (one alone). `
      + `Over all networks: excess kurtosis ${law.kurtosis.toFixed(3)}; beyond 6 standard deviations `
      + `${readable(law.ratio)} times as likely as the Gaussian of the same variance says.`;
    Object.assign(box.dataset, {kurtosis: law.kurtosis, ratio: law.ratio, mean: law.mean, networks: networks.length});
  }

  function bells(law, v, sd, reach, log) {
    const xs = Y.map(y => y*(log ? reach/4 : sd)), top = 1.25*Math.max(law.density(0), bell(0, law.mean));
    const P = panel({height: HEIGHT[axis.value], x: [xs[0], xs.at(-1)], y: log ? [1e-9*top, 2*top] : [0, top], log, xlabel: "output y", ylabel: "density",
      describe: "Densities of one output: single networks, their mixture, and the Gaussian of the same variance"});
    for (const n of networks.slice(-KEPT - 1, -1)) P.line(xs, xs.map(y => bell(y, n.S[0][0])), "past");
    const narrow = log ? finiteLaws(finite, table, τ.value, H.value, s.value) : [];
    for (const [, density] of narrow) P.line(xs, xs.map(density), "finite");
    P.line(xs, xs.map(y => bell(y, law.mean)), "gaussian");
    P.line(xs, xs.map(y => law.density(y)), "law");
    P.line(xs, xs.map(y => bell(y, v)), "now");
    if (networks.length > 1) P.line(xs, xs.map(y => networks.reduce((t, n) => t + bell(y, n.S[0][0]), 0)/networks.length), "mean");
    const earlier = networks.length > 1 ? [["past", "earlier ones"], ["mean", `mean of ${networks.length}`]] : [];
    const widths = narrow.length ? [["finite", `widths ${narrow.map(([n]) => n).join(", ")}`]] : [];
    return el("figure", {}, P.root, key([["now", "this network"], ...earlier,
      ["law", "all networks: the limit"], ["gaussian", "Gaussian, same variance"], ...widths]));
  }

  function spread(law, v) {
    const edges = linspace(0, 1.02, 41), counts = Array(40).fill(0);
    for (const x of variances) counts[Math.min(39, Math.floor(x/1.02*40))]++;
    const heights = counts.map(c => c/variances.length), top = 1.2*Math.max(...heights);
    const P = panel({height: HEIGHT.share, x: [0, 1.02], y: [0, top], xlabel: "conditional variance v", ylabel: "share",
      describe: "Distribution of the conditional variance over networks"});
    P.bars(edges, heights, "bar");
    P.line([1, 1], [0, top], "ceiling");
    P.line([law.mean, law.mean], [0, top], "gaussian");
    P.line([v, v], [0, top], "now");
    return el("figure", {}, P.root, key([["bar", "1500 networks"], ["now", "this one"], ["gaussian", "mean"], ["ceiling", "ceiling"]]));
  }

  restart();
}

export function key(entries) {
  const list = el("ul", {class: "live-key"});
  for (const [kind, text] of entries) {
    const mark = svg("svg", {viewBox: "0 0 24 10", width: 24, height: 10, "aria-hidden": "true"});
    mark.append(kind === "bar" ? svg("rect", {x: 2, y: 1, width: 20, height: 8, class: "live-bar"})
      : kind === "dot" ? svg("circle", {cx: 12, cy: 5, r: 4, class: "live-dot"}) : svg("path", {d: "M1 5H23", class: "live-" + kind}));
    list.append(el("li", {}, mark, text));
  }
  return list;
}
