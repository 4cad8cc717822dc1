// Two layers of one head of attention learn induction at infinite width: their circuits
// are small matrices, and each is trained by itself.
import {button, el, normal, panel, still, svg} from "./plot.js";

const LETTERS = 5, PLACES = LETTERS + 1, SIZE = LETTERS + PLACES, SHOWN = 300, EPS = 1e-5;
const numbers = n => new Float64Array(n);
const LAYERS = [ // matrix, what to call a block, its rows and columns in blocks, trained matrices
  {of: 0, name: "layer 1: tokens attend to tokens", at: [0, 0], rate: 2},
  {of: 1, name: "layer 2: tokens attend to tokens", at: [0, 0], rate: 2},
  {of: 1, name: "layer 2: tokens attend to copies", at: [0, 1], rate: 4},
  {of: 1, name: "layer 2: copies attend to tokens", at: [1, 0], rate: 4},
  {of: 1, name: "layer 2: copies attend to copies", at: [1, 1], rate: 6},
  {of: 2, name: "out: tokens", at: [0, 0], rate: 1},
  {of: 2, name: "out: head 1", at: [1, 0], rate: 3},
  {of: 2, name: "out: head 2", at: [2, 0], rate: 3},
  {of: 2, name: "out: head 1, then head 2", at: [3, 0], rate: 5}];
export const CIRCUITS = LAYERS;
const INDUCTION = 2; // tokens are compared with the copies made by the first head

// All orders of the letters, one of them again at the end: which letter followed it? A token
// is zero but for its letter and its place, which are one: those two are listed.
export function induction() {
  const orders = [[]];
  for (let k = 0; k < LETTERS; k++)
    orders.splice(0, orders.length, ...orders.flatMap(o => [...Array(LETTERS).keys()].filter(x => !o.includes(x)).map(x => [...o, x])));
  const all = orders.flatMap(order => order.slice(0, -1).map((x, k) => ({letters: [...order, x], answer: order[k + 1]})));
  for (let k = all.length - 1; k > 0; k--) {
    const j = Math.floor(Math.random()*(k + 1));
    [all[k], all[j]] = [all[j], all[k]];
  }
  for (const sequence of all) sequence.tokens = sequence.letters.map((x, i) => [x, LETTERS + i]);
  return all;
}

// Circuits of both layers' scores (d×d, 2d×2d) and of the output (4d×D), as standard normals.
export function network(d = SIZE, D = LETTERS) {
  const now = [d*d, 4*d*d, 4*d*D].map(n => numbers(n).map(normal));
  return {d, D, now, velocity: now.map(w => numbers(w.length))};
}

// The rows and columns of a block: calls f with each of its entries.
function within({d, D}, {of, at: [r, c]}, f) {
  const width = [d, 2*d, D][of], columns = of < 2 ? d : D;
  for (let i = r*d; i < (r + 1)*d; i++) for (let k = c*columns; k < (c + 1)*columns; k++) f(i*width + k);
}

export function strength(net, block) {
  let sum = 0, n = 0;
  within(net, block, k => { sum += net.now[block.of][k]**2; n++; });
  return Math.sqrt(sum/n);
}

// The same network with some blocks set to zero.
export function without(net, blocks) {
  const now = net.now.map(w => w.slice());
  for (const block of blocks) within(net, block, k => { now[block.of][k] = 0; });
  return {...net, now};
}

const dot = (a, b) => { let s = 0; for (let k = 0; k < a.length; k++) s += a[k]*b[k]; return s; };
const add = (to, from, x) => { for (let k = 0; k < to.length; k++) to[k] += x*from[k]; };
const mixed = (weights, rows) => { const x = numbers(rows[0].length); for (let j = 0; j < rows.length; j++) add(x, rows[j], weights[j]); return x; };
const slopes = (a, d) => { const mean = dot(a, d); return a.map((x, j) => x*(d[j] - mean)); }; // of a softmax
function rowTimes(u, W, n) { // uᵀ W, W of n columns
  const out = numbers(n);
  for (let i = 0; i < u.length; i++) if (u[i]) for (let k = 0, j = i*n; k < n; k++, j++) out[k] += u[i]*W[j];
  return out;
}
function timesColumn(W, x, rows) {
  const out = numbers(rows);
  for (let i = 0, j = 0; i < rows; i++) for (let k = 0; k < x.length; k++, j++) out[i] += W[j]*x[k];
  return out;
}
function outer(to, u, x) { // to += u xᵀ
  for (let i = 0; i < u.length; i++) if (u[i]) for (let k = 0, j = i*x.length; k < x.length; k++, j++) to[j] += u[i]*x[k];
}
function softmax(p) {
  const top = Math.max(...p), e = p.map(x => Math.exp(x - top));
  let sum = 0;
  for (const x of e) sum += x;
  for (let k = 0; k < e.length; k++) e[k] /= sum;
  return e;
}

// What a network answers to a sequence, and what it saw on the way; each token sees those before it.
export function reply({d, D, now: [B, C, R]}, tokens) {
  const c = 1/Math.sqrt(tokens[0].length + EPS), last = tokens.length - 1, sizes = [];
  const first = tokens.map((asks, i) => {
    const p = [];
    for (let j = 0; j <= i; j++) {
      let score = 0;
      for (const x of asks) for (const y of tokens[j]) score += B[x*d + y];
      p.push(c*c*score);
    }
    return softmax(p);
  });
  const seen = tokens.map((own, i) => { // the token, then its copies; of length one
    const v = numbers(2*d);
    for (const x of own) v[x] = 1;
    for (let j = 0; j <= i; j++) for (const y of tokens[j]) v[d + y] += c*first[i][j];
    sizes.push(Math.sqrt(dot(v, v) + EPS));
    for (let k = 0; k < 2*d; k++) v[k] /= sizes[i];
    return v;
  });
  const asked = rowTimes(seen[last], C, 2*d), weights = softmax(seen.map(k => dot(asked, k)));
  const read = numbers(4*d);
  read.set(seen[last].map(x => sizes[last]*x));
  read.set(mixed(weights, seen), 2*d);
  return {c, first, sizes, seen, asked, weights, read, f: Array.from(rowTimes(read, R, D))};
}

// Derivatives by all circuits, added to `to`; χ is the derivative by f.
function back({d, now: [, C, R]}, tokens, {c, first, sizes, seen, asked, weights, read}, χ, to) {
  const last = tokens.length - 1, dread = timesColumn(R, χ, 4*d), dmixed = dread.subarray(2*d);
  outer(to[2], read, χ);
  const dP = slopes(weights, seen.map(u => dot(dmixed, u))), key = mixed(dP, seen);
  outer(to[1], seen[last], key);
  const ask = timesColumn(C, key, 2*d), du = numbers(2*d);
  for (let i = 0; i <= last; i++) {
    for (let k = 0; k < 2*d; k++) du[k] = weights[i]*dmixed[k] + dP[i]*asked[k] + (i === last ? ask[k] : 0);
    const along = dot(du, seen[i]), dA = [];
    for (let k = d; k < 2*d; k++) du[k] = (du[k] - along*seen[i][k])/sizes[i] + (i === last ? dread[k] : 0);
    for (let j = 0; j <= i; j++) {
      let sum = 0;
      for (const y of tokens[j]) sum += c*du[d + y];
      dA.push(sum);
    }
    slopes(first[i], dA).forEach((g, j) => { for (const x of tokens[i]) for (const y of tokens[j]) to[0][x*d + y] += c*c*g; });
  }
}

export const right = (net, sequences) => sequences.filter(({tokens, answer}) => {
  const {f} = reply(net, tokens);
  return f.indexOf(Math.max(...f)) === answer;
}).length/sequences.length;

// One step of gradient descent on the sum of the cross entropies; returns their mean.
export function step(net, sequences, η, μ) {
  const to = net.now.map(w => numbers(w.length));
  let loss = 0;
  for (const {tokens, answer} of sequences) {
    const seen = reply(net, tokens), χ = softmax(seen.f);
    loss -= Math.log(χ[answer]);
    χ[answer] -= 1;
    back(net, tokens, seen, χ, to);
  }
  for (const block of LAYERS) within(net, block, k => {
    const v = net.velocity[block.of];
    v[k] = μ*v[k] - η*block.rate*to[block.of][k];
    net.now[block.of][k] += v[k];
  });
  return loss/sequences.length;
}

const letter = x => "ABCDE"[x];

// Who attends to whom: rows ask, columns are asked.
function pattern(title, rows, columns, weights) {
  const cell = 30, left = 34, top = 44, wide = left + cell*columns.length + 6;
  const root = svg("svg", {viewBox: `0 0 ${wide} ${top + cell*rows.length + 6}`, role: "img", "aria-label": title, class: "live-panel"});
  root.append(svg("text", {x: wide/2, y: 15, "text-anchor": "middle"}, title));
  columns.forEach((name, j) => root.append(svg("text", {x: left + cell*(j + .5), y: 37, "text-anchor": "middle"}, name)));
  rows.forEach((name, i) => {
    root.append(svg("text", {x: left - 12, y: top + cell*(i + .65), "text-anchor": "middle"}, name));
    columns.forEach((_, j) => root.append(
      svg("rect", {x: left + cell*j, y: top + cell*i, width: cell - 2, height: cell - 2, class: "live-cell", "fill-opacity": (weights[i][j] ?? 0).toFixed(3)}),
      svg("rect", {x: left + cell*j, y: top + cell*i, width: cell - 2, height: cell - 2, class: "live-past", fill: "none"})));
  });
  return el("figure", {}, root);
}

export default async function circuits(box) {
  const η = 2e-4, LONGEST = 3000;
  const train = button("train", () => { running = !running; train.textContent = running ? "stop" : "train"; if (running) run(); });
  const bars = el("div", {class: "live-strengths", role: "group", "aria-label": "circuits: press one to cut it"});
  const panels = el("div", {class: "live-panels live-three"}), said = el("p", {class: "live-said", "aria-live": "polite"});
  const all = induction(), shown = all.slice(0, SHOWN), fresh = all.slice(SHOWN), cut = new Set();
  let net, steps, curve, example = fresh[0], running = false;
  const rows = LAYERS.map((block, k) => {
    const fill = el("span", {class: "live-fill"}), value = el("output");
    const b = button("", () => { cut.has(k) ? cut.delete(k) : cut.add(k); show(); });
    b.append(el("span", {}, block.name), el("span", {class: "live-track"}, fill), value);
    bars.append(b);
    return {b, fill, value};
  });
  box.append(el("div", {class: "live-controls"}, train, button("new network", () => renew()),
                button("another sequence", () => { example = fresh[Math.floor(Math.random()*fresh.length)]; show(); }),
                button("uncut", () => { cut.clear(); show(); })), bars, panels, said);

  function renew() {
    net = network();
    steps = 0;
    curve = [{steps, shown: right(net, shown), fresh: right(net, fresh)}];
    show();
  }

  async function run() {
    while (running && steps < LONGEST) {
      const until = performance.now() + (still() ? 400 : 40);
      do { step(net, shown, η, .9); steps++; } while (performance.now() < until && steps < LONGEST && steps % 50);
      if (steps % 50 === 0) curve.push({steps, shown: right(net, shown), fresh: right(net, fresh)});
      if (!still() || steps % 500 === 0) show();
      await new Promise(done => setTimeout(done, 10));
    }
    running = false;
    train.textContent = "train";
    show();
  }

  function show() {
    const used = without(net, [...cut].map(k => LAYERS[k]));
    const sizes = LAYERS.map(block => strength(net, block)), most = Math.max(3, ...sizes);
    rows.forEach(({b, fill, value}, k) => {
      b.setAttribute("aria-pressed", cut.has(k));
      b.classList.toggle("live-cut", cut.has(k));
      fill.style.width = `${100*sizes[k]/most}%`;
      value.textContent = cut.has(k) ? "cut" : sizes[k].toFixed(2);
    });
    const found = reply(used, example.tokens), names = example.letters.map(letter);
    const left = panel({width: 340, height: 250, x: [0, 1.07*Math.max(400, steps)], y: [0, 1.05], xlabel: "step", ylabel: "right answers", describe: "Right answers along the training"});
    left.line(curve.map(c => c.steps), curve.map(c => c.shown), "gaussian");
    left.line(curve.map(c => c.steps), curve.map(c => c.fresh), "now");
    const answer = found.f.indexOf(Math.max(...found.f));
    panels.replaceChildren(el("figure", {}, left.root), pattern("first layer", names, names, found.first),
                           pattern("second layer", [names.at(-1)], names, [found.weights]));
    const now = right(used, fresh);
    const share = x => `${Math.round(100*x)} %`;
    said.textContent = `After ${steps} steps: correct answers to ${share(right(used, shown))} of the training sequences (dashed) and ${share(now)} of new sequences (line)${cut.size ? ", without the circuits that are cut" : ""}; by chance ${share(1/LETTERS)}. `
      + `For ${names.slice(0, -1).join(" ")} and then ${names.at(-1)}, the network predicts ${letter(answer)}; the correct answer is ${letter(example.answer)}.`;
    Object.assign(box.dataset, {steps, fresh: now, cut: cut.size, induction: sizes[INDUCTION], answer});
  }

  renew();
}
