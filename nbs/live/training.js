// One attention layer learns to recall, by gradient descent, at any width: literal
// weights below infinity, products of matrices at infinity.
import {button, choice, el, normal, panel, slider, still} from "./plot.js";
import {dot, filled, map, plus, scale, times, turned, mul} from "./matrices.js";

const KEYS = 3, SIZE = 2, SEQUENCES = 10, SCORE = Math.sqrt(.1);
const sum = a => a.reduce((x, y) => x + y, 0);

// Keys in random order with their values, then one key more: which value is its own?
export function recall() {
  const X = [], y = [], answer = [];
  for (let p = 0; p < SEQUENCES; p++) {
    const order = Array.from({length: KEYS}, (_, k) => [Math.random(), k]).sort((a, b) => a[0] - b[0]).map(a => a[1]);
    const tokens = filled(KEYS + 1, KEYS + 1, () => 0);
    order.forEach((k, i) => { tokens[i][k] = SIZE; tokens[i][KEYS] = normal(); });
    const cue = Math.floor(KEYS*Math.random()), place = order.indexOf(cue);
    tokens[KEYS][cue] = SIZE;
    X.push(tokens);
    y.push(tokens[place][KEYS]);
    answer.push(place);
  }
  return {X, y, answer};
}

const draw = (r, c) => filled(r, c, normal);
const column = z => z.map(x => [x]);

// A head: its products B and ζ, and one step of them. `decay` = `temperature` keeps the prior.
export function head(d, m, start) {
  if (m === Infinity) {
    let {B, ζ} = start ?? {B: draw(d, d), ζ: draw(d, 1)};
    let c = 1;
    const step = (J, M, η, T) => {
      const keep = 1 - η*T, noise = Math.sqrt(2*(2*η*T)*c*keep**2 + (2*η*T)**2);
      return map(J, (x, i, k) => keep**2*x - 2*η*keep*c*M[i][k] + (T ? noise*normal() : 0));
    };
    return {products: () => ({B, ζ}), step(M, γ, η, T) {
      B = step(B, M, η, T);
      ζ = step(ζ, γ, η, T);
      c = (1 - η*T)**2*c + 2*η*T;
    }};
  }
  let {Q, K, V, O} = start ?? {Q: draw(d, m), K: draw(d, m), V: draw(d, m), O: draw(1, m)};
  const r = Math.sqrt(m);
  const step = (W, g, η, T) => map(W, (w, i, k) => (1 - η*T)*w - η*g[i][k]/r + (T ? Math.sqrt(2*η*T)*normal() : 0));
  return {products: () => ({B: scale(times(Q, K), 1/r), ζ: scale(times(V, O), 1/r)}),
          weights: () => ({Q, K, V, O}), step(M, γ, η, T) {
    [Q, K] = [step(Q, mul(M, K), η, T), step(K, mul(turned(M), Q), η, T)];
    [V, O] = [step(V, mul(γ, O), η, T), step(O, mul(turned(γ), V), η, T)];
  }};
}

// What a layer of heads answers to a sequence: the cue asks, the keys are asked.
export function reply(heads, X) {
  const products = heads.map(h => h.products());
  return X.map(tokens => {
    const cue = tokens[KEYS], asked = tokens.slice(0, KEYS);
    const parts = products.map(({B, ζ}) => {
      const q = mul([cue], B)[0];
      const score = asked.map(x => SCORE*dot(q, x));
      const e = score.map(g => Math.exp(g - Math.max(...score)));
      const A = e.map(x => x/sum(e));
      const Z = cue.map((_, k) => sum(asked.map((x, j) => A[j]*x[k])));
      const value = asked.map(x => sum(x.map((v, k) => v*ζ[k][0])));
      return {score, A, Z, value, f: sum(Z.map((v, k) => v*ζ[k][0]))};
    });
    return {parts, f: sum(parts.map(a => a.f))/Math.sqrt(heads.length)};
  });
}

export const loss = (found, y) => sum(found.map((a, p) => (a.f - y[p])**2))/2;

// One step of gradient descent of all heads.
export function step(heads, X, y, η, T) {
  const found = reply(heads, X), d = X[0][0].length;
  heads.forEach((h, k) => {
    let M = filled(d, d, () => 0), γ = filled(d, 1, () => 0);
    found.forEach(({parts, f}, p) => {
      const χ = (f - y[p])/Math.sqrt(heads.length), {A, Z, value, f: mean} = parts[k];
      const toward = X[p][KEYS].map((_, i) => sum(A.map((a, j) => a*(value[j] - mean)*X[p][j][i])));
      M = plus(M, filled(d, d, (i, j) => SCORE*χ*X[p][KEYS][i]*toward[j]));
      γ = plus(γ, column(Z.map(v => χ*v)));
    });
    h.step(M, γ, η, T);
  });
}

export default async function training(box) {
  const H = slider("heads H", [1, 2, 4, 8], 1, String, () => renew());
  const m = slider("width m", [1, 4, 16, 64, 256, Infinity], Infinity, x => x === Infinity ? "∞" : String(x), () => renew());
  const noise = choice("noise", ["no noise", "T = λ = 0.1"], () => show());
  const train = button("train", () => { running = !running; train.textContent = running ? "stop" : "train"; if (running) run(); });
  const panels = el("div", {class: "live-panels"}), said = el("p", {class: "live-said", "aria-live": "polite"});
  const η = .01, LONGEST = 2000;
  let data = recall(), heads = [], start = [], losses = [], running = false;
  box.append(el("div", {class: "live-controls"}, train, button("new network", () => renew()), button("new task", () => { data = recall(); renew(); }), noise.box), panels,
             el("div", {class: "live-controls"}, H.box, m.box), said);

  const scores = found => found.flatMap(({parts}) => parts.flatMap(a => a.score));
  function renew() {
    heads = Array.from({length: H.value}, () => head(KEYS + 1, m.value));
    const found = reply(heads, data.X);
    start = scores(found);
    losses = [loss(found, data.y)];
    show();
  }

  function advance(steps) {
    for (let k = 0; k < steps && losses.length <= LONGEST; k++) {
      step(heads, data.X, data.y, η/Math.max(1, losses[0]/20), noise.value === "no noise" ? 0 : .1);
      losses.push(loss(reply(heads, data.X), data.y));
    }
    show();
  }

  async function run() {
    while (running && losses.length <= LONGEST) {
      advance(still() ? LONGEST : 8);
      await new Promise(done => setTimeout(done, 30));
    }
    running = false;
    train.textContent = "train";
  }

  function show() {
    const found = reply(heads, data.X), now = scores(found), steps = losses.length - 1;
    const top = 1.05*Math.max(2, ...[...start, ...now].map(Math.abs));
    const left = panel({x: [0, Math.max(200, steps)], y: [1e-3, 1.5*Math.max(...losses, 1)], log: true, xlabel: "step", ylabel: "loss", describe: "The loss along the training"});
    const every = Math.ceil(losses.length/400), at = losses.map((_, k) => k).filter(k => k % every === 0 || k === steps);
    left.line(at, at.map(k => losses[k]), "now");
    const right = panel({x: [-top, top], y: [-top, top], xlabel: "score at the start", ylabel: "score now", describe: "Scores now against the start"});
    right.line([-top, top], [-top, top], "past");
    right.dots(start, now, "dot", 3.5);
    panels.replaceChildren(el("figure", {}, left.root), el("figure", {}, right.root));
    const weight = sum(found.map(({parts}, p) => sum(parts.map(a => a.A[data.answer[p]]))/heads.length))/data.y.length;
    const moved = Math.sqrt(sum(now.map((g, k) => (g - start[k])**2))/now.length);
    said.textContent = `After ${steps} steps: loss ${losses[steps].toPrecision(2)}, scores moved by ${moved.toFixed(2)} (rms), weight on the right answer ${weight.toFixed(2)} (by chance ${(1/KEYS).toFixed(2)}).`;
    Object.assign(box.dataset, {steps, loss: losses[steps], moved, weight, heads: H.value, width: m.value});
  }

  renew();
  if (!still()) advance(60);
}
