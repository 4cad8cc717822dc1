// A random transformer as a Markov chain of small matrices, there and back, at every
// width: the arithmetic of the pages "Whole transformers" and "The way back".
// A row holds a token: its mean over coordinates, then its coordinates in a frame.
import {beside, cut, diagonal, drawn, each, eye, map, mul, normals, over, plus, root,
        rows, scale, spread, square, sums, times, turned, zeros} from "./matrices.js";

// Attention: F is the covariance of what is added, B one head's factor of it.
function softmax(P, causal) {
  const A = zeros(P.b, P.r, P.c);
  const entropy = new Float64Array(P.b*P.r);
  for (let i = 0; i < entropy.length; i++) {
    const end = i*P.c + (causal ? i % P.r + 1 : P.c);
    let top = -Infinity;
    for (let k = i*P.c; k < end; k++) top = Math.max(top, P.a[k]);
    let sum = 0;
    for (let k = i*P.c; k < end; k++) sum += A.a[k] = Math.exp(P.a[k] - top);
    entropy[i] = Math.log(sum);
    for (let k = i*P.c; k < end; k++) {
      A.a[k] /= sum;
      if (A.a[k] > 0) entropy[i] -= A.a[k]*(P.a[k] - top);
    }
  }
  return {A, entropy};
}

function attend(t, R) {
  const m = t.width/t.heads;
  let F = zeros(R.b, R.r, R.r);
  const heads = Array.from({length: t.heads}, () => {
    const K = spread(R, m, m);
    const Q = drawn(R, K.c);
    const P = scale(times(Q, K), t.score);
    const V = spread(R, m, m);
    const {A, entropy} = softmax(P, t.causal);
    const B = scale(mul(A, V), t.branch/Math.sqrt(t.heads));
    F = plus(F, square(B));
    return {K, Q, P, V, A, B, entropy};
  });
  return {F, heads, back: attendBack};
}

function attendBack(t, {F, heads}, S, E, R) {
  const m = t.width/t.heads;
  const c = t.branch/Math.sqrt(t.heads);
  const fresh = heads.map(h => drawn(E, h.B.c));
  const M = over(heads.reduce((X, h, k) => plus(X, times(fresh[k], h.B), -1), S), F);
  const [G, EE] = [square(R), square(E)];
  const whole = (A, B) => plus(square(A), square(B), 1/m);
  let [T, dQ, dK, dV] = Array(4).fill(zeros(R.b, R.r, R.r));
  heads.forEach((h, k) => {
    const g = plus(fresh[k], mul(M, h.B));
    const dA = scale(times(g, h.V), c);
    const weighted = each(h.A, dA);
    const dP = plus(weighted, rows(h.A, sums(weighted.a, R.r)), -1);
    const [A, back] = [turned(h.A), turned(dP)];
    const keys = m < Infinity ? square(h.K) : G;
    const queries = m < Infinity ? whole(spread(R, m - h.K.c, m), h.Q) : G;
    const values = m < Infinity ? whole(spread(E, m - h.V.c, m), g) : EE;
    dQ = plus(dQ, times(times(dP, keys), dP), t.score**2);
    dK = plus(dK, times(times(back, queries), back), t.score**2);
    dV = plus(dV, times(times(A, values), A), c*c);
    T = plus(T, plus(times(dP, h.P), plus(mul(back, h.P), mul(A, dA))));
  });
  const size = X => sums(each(G, X).a, R.r**2);
  return {T, Σ: plus(dQ, plus(dK, dV)), sizes: {queries: size(dQ), values: size(dV)}};
}

// MLP with ReLU and 4n units; in the limit their moments, and 64 units on the way back.
function pairs(G, f) { // f of a length² a, a covariance c, √(ab − c²) and an angle
  const d = diagonal(G);
  return map(G, (c, k) => {
    const i = k/G.c | 0;
    const height = Math.sqrt(Math.max(d[i]*d[i - i % G.r + k % G.c] - c*c, 0));
    return f(d[i], c, height, Math.PI - Math.atan2(height, c))/(2*Math.PI);
  });
}

const relu = x => x > 0 ? x : 0;

function units(t, R) {
  const var2 = 2*t.branch**2;
  const h = t.width < Infinity && drawn(R, 4*t.width);
  const K = h ? scale(square(map(h, relu)), 1/h.c)
    : pairs(square(R), (a, c, height, angle) => height + angle*c);
  return {F: scale(K, var2), h, back: unitsBack};
}

function unitsBack(t, {F, h}, S, E, R) {
  const u = h || drawn(R, 64);
  const c = t.branch*Math.sqrt(2/u.c);
  const B = scale(map(u, relu), c);
  const ξ = drawn(E, u.c);
  const seen = times(ξ, B);
  const exact = h ? seen : times(drawn(E, F.c), root(F));
  const M = over(plus(S, exact, -1), F);
  const g = h ? plus(ξ, mul(M, B)) : ξ;
  const du = map(u, (x, k) => x > 0 ? c*g.a[k] : 0);
  const T = times(du, u);
  if (h) return {T, Σ: square(du), sizes: {}};
  const var2 = 2*t.branch**2;
  const G = square(R);
  const β = pairs(G, (a, c, height, angle) => angle);
  const α = pairs(G, (a, c, height) => a > 0 ? height/a : 0);
  const W = scale(plus(M, over(plus(exact, seen, -1), F)), var2);
  const bend = rows(G, sums(each(W, α).a, G.c));
  const slope = times(each(W, β), G);
  return {T: plus(T, plus(bend, slope)), Σ: scale(each(square(E), β), var2), sizes: {}};
}

// One residual sum: norm, branch, X + Y in the frame (1, X, beyond), norm.
function normed(x) {
  const B = cut(x, 1);
  const D = diagonal(square(B)).map(v => 1/Math.sqrt(v + 1e-5));
  return {D, u: rows(beside(zeros(x.b, x.r, 1), B), D)};
}

function step(t, x, branch) {
  const before = t.norm === "pre" ? normed(x) : {u: x};
  const R = root(square(before.u));
  const seen = branch(t, R);
  const C = root(seen.F);
  const near = scale(drawn(C, x.c), 1/Math.sqrt(t.width));
  const y = beside(near, spread(C, t.width - x.c, t.width));
  const sum = plus(y, beside(x, zeros(x.b, x.r, x.r)));
  const after = t.norm === "post" ? normed(sum) : {u: sum};
  const out = beside(cut(after.u, 0, 1), root(square(cut(after.u, 1))));
  return {x, before, R, seen, y, sum, after, out};
}

// The gradient of X: its inner products C with 1 and X, and E with itself.
function framed(x) { // a row for 1 above the tokens
  const F = zeros(x.b, x.r + 1, x.c);
  for (let n = 0; n < x.b; n++) {
    F.a[n*F.r*F.c] = 1;
    F.a.set(x.a.subarray(n*x.r*x.c, (n + 1)*x.r*x.c), n*F.r*F.c + F.c);
  }
  return F;
}

function beforeNorm({C, E}, {u, D}, n) {
  const columns = (A, d) => turned(rows(turned(A), d));
  const X = cut(C, 1);
  const t = diagonal(X);
  const along = rows(square(u), t);
  const half = columns(plus(X, along, -.5), t);
  const lost = plus(plus(half, turned(half)), square(cut(C, 0, 1)));
  const inner = columns(plus(X, along, -1), D.map(d => 1/d));
  const kept = columns(plus(E, lost, -1/n), D);
  return {C: beside(zeros(u.b, u.r, 1), rows(inner, D)), E: rows(kept, D)};
}

function stepBack(t, {x, before, R, seen, y, sum, after}, g) {
  const n = t.width;
  const [b, s] = [x.b, x.r];
  const {C, E} = t.norm === "post" ? beforeNorm(g, after, n) : g;
  // in the frame of the sum: along it as known, elsewhere uniformly random
  const frame = framed(sum);
  const M = square(frame);
  const known = over(C, M);
  const free = normals(b, s, frame.c);
  const N = plus(free, mul(over(times(free, frame), M), frame), -1);
  const T = spread(eye(b, s), n - frame.c, n);
  const H = plus(square(T), square(N), 1/n);
  const rest = root(plus(E, times(known, C), -1/n));
  const turn = over(times(rest, root(H)), H);
  const along = plus(mul(known, frame), mul(turn, N));
  const beyond = square(mul(turn, T));
  const dY = root(plus(beyond, square(along), 1/n));
  const {T: inner, Σ, sizes} = seen.back(t, seen, times(along, y), dY, R);
  // what comes through the branch, and its norm
  const u = before.u;
  let L = root(Σ);
  let d = drawn(L, x.c);
  d = plus(d, mul(over(plus(inner, times(d, u), -1), square(u)), u));
  if (before.D) {
    d = rows(plus(d, rows(u, diagonal(inner)), -1), before.D);
    d = beside(zeros(b, s, 1), cut(d, 1));
    L = rows(L, before.D);
  }
  // joined with what went past it
  const past = root(plus(beyond, square(cut(along, x.c)), 1/n));
  const all = plus(cut(along, 0, x.c), d);
  const near = plus(past, drawn(L, s), 1/Math.sqrt(n));
  const far = spread(L, n - x.c - s, n);
  const size = plus(plus(square(near), square(far)), square(all), 1/n);
  return {g: {C: times(all, framed(x)), E: size}, sizes};
}

function cosine(x) { // mean over pairs of tokens
  const K = square(x);
  const d = diagonal(K).map(v => 1/Math.sqrt(v));
  const near = rows(turned(rows(K, d)), d);
  return sums(near.a, x.r**2).map(sum => (sum - x.r)/(x.r*(x.r - 1)));
}

// b networks, block after block, in slices. Settings t: tokens, layers, heads, score
// (σQσK), branch (σO), norm, mlp, causal, width. The loss reads the last token.
export function* networks(t, b) {
  const s = t.tokens;
  let x = beside(zeros(b, s, 1), eye(b, s));
  const found = {cosine: [cosine(x)], entropy: [], stream: [], queries: [], values: []};
  const blocks = [];
  for (let l = 0; l < t.layers; l++) {
    const steps = [step(t, x, attend)];
    yield;
    if (t.mlp) steps.push(step(t, steps[0].out, units));
    x = steps.at(-1).out;
    blocks.push(steps);
    found.cosine.push(cosine(x));
    const {heads} = steps[0].seen;
    const entropies = heads.map(h => sums(h.entropy, s).map(e => e/s/t.heads));
    found.entropy.push(entropies.reduce((e, f) => e.map((y, k) => y + f[k])));
    yield;
  }
  const last = map(zeros(b, s, 1), (_, i) => +(i % s === s - 1));
  const along = drawn(last, x.c);
  const beyond = square(spread(last, t.width - x.c, t.width));
  let g = {C: times(along, framed(x)), E: plus(beyond, square(along), 1/t.width)};
  const norm = () => sums(diagonal(g.E), s);
  found.stream.unshift(norm());
  for (const steps of blocks.reverse()) {
    for (const one of steps.reverse()) {
      const back = stepBack(t, one, g);
      g = back.g;
      for (const [name, θ] of Object.entries(back.sizes)) found[name].unshift(θ);
      yield;
    }
    found.stream.unshift(norm());
  }
  return found;
}
