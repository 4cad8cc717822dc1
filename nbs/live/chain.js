// A random transformer as a Markov chain of small matrices, there and back, at every
// width: the arithmetic of the pages "Whole transformers" and "The way back".
// A row holds a token: its mean over coordinates, then its coordinates in a frame.
import {chi2, normal} from "./plot.js";

export const zeros = (r, c) => ({r, c, a: new Float64Array(r*c)});
const map = (A, f) => ({r: A.r, c: A.c, a: A.a.map(f)});
const normals = (r, c) => map(zeros(r, c), normal);
const scale = (A, x) => map(A, y => x*y);
const plus = (A, B, x = 1) => map(A, (y, k) => y + x*B.a[k]);
const each = (A, B) => map(A, (y, k) => y*B.a[k]);
const rows = (A, d) => map(A, (y, k) => y*d[Math.floor(k/A.c)]);
const total = A => A.a.reduce((t, x) => t + x, 0);
const diagonal = A => Array.from({length: A.r}, (_, i) => A.a[i*(A.c + 1)]);
const square = A => times(A, A);
const eye = s => map(zeros(s, s), (_, k) => k % (s + 1) === 0 ? 1 : 0);

function cut(A, from, to = A.c) { // some columns
  const B = zeros(A.r, to - from);
  for (let i = 0; i < A.r; i++) B.a.set(A.a.subarray(i*A.c + from, i*A.c + to), i*B.c);
  return B;
}

function beside(A, B) {
  const C = zeros(A.r, A.c + B.c);
  for (let i = 0; i < A.r; i++) {
    C.a.set(A.a.subarray(i*A.c, (i + 1)*A.c), i*C.c);
    C.a.set(B.a.subarray(i*B.c, (i + 1)*B.c), i*C.c + A.c);
  }
  return C;
}

function turned(A) {
  const B = zeros(A.c, A.r);
  for (let i = 0; i < A.r; i++) for (let j = 0; j < A.c; j++) B.a[j*A.r + i] = A.a[i*A.c + j];
  return B;
}

function times(A, B) { // A Bᵀ
  const C = zeros(A.r, B.r);
  const c = A.c;
  for (let i = 0; i < A.r; i++) {
    for (let j = 0; j < B.r; j++) {
      let t = 0;
      for (let k = 0; k < c; k++) t += A.a[i*c + k]*B.a[j*c + k];
      C.a[i*B.r + j] = t;
    }
  }
  return C;
}

const mul = (A, B) => times(A, turned(B));

// Lower triangular L, L Lᵀ = S; a pivot below 10⁻¹² of its entry counts as zero.
function root(S) {
  const s = S.r;
  const L = zeros(s, s);
  for (let j = 0; j < s; j++) {
    for (let i = j; i < s; i++) {
      let t = S.a[i*s + j];
      for (let k = 0; k < j; k++) t -= L.a[i*s + k]*L.a[j*s + k];
      if (i === j) L.a[j*s + j] = t <= 1e-12*S.a[j*s + j] ? 0 : Math.sqrt(t);
      else L.a[i*s + j] = L.a[j*s + j] === 0 ? 0 : t/L.a[j*s + j];
    }
  }
  return L;
}

// B S⁻, for rows of B in the range of S.
function over(B, S) {
  const L = root(S);
  const s = S.r;
  const X = map(B, x => x);
  const divide = (i, j, t) => { X.a[i*s + j] = L.a[j*s + j] === 0 ? 0 : t/L.a[j*s + j]; };
  for (let i = 0; i < B.r; i++) {
    for (let j = 0; j < s; j++) {
      let t = X.a[i*s + j];
      for (let k = 0; k < j; k++) t -= L.a[j*s + k]*X.a[i*s + k];
      divide(i, j, t);
    }
    for (let j = s - 1; j >= 0; j--) {
      let t = X.a[i*s + j];
      for (let k = j + 1; k < s; k++) t -= L.a[k*s + j]*X.a[i*s + k];
      divide(i, j, t);
    }
  }
  return X;
}

// R T/√n with T Tᵀ a Wishart matrix of some degrees of freedom; R itself for n = ∞.
function spread(R, df, n) {
  if (n === Infinity) return R;
  const T = zeros(R.c, Math.min(R.c, df));
  for (let j = 0; j < T.c; j++) {
    T.a[j*T.c + j] = Math.sqrt(chi2(df - j)/n);
    for (let i = j + 1; i < T.r; i++) T.a[i*T.c + j] = normal()/Math.sqrt(n);
  }
  return mul(R, T);
}

// Attention: weights A, and B with B Bᵀ summed over heads the covariance of what is added.
function weights(P, causal) {
  const A = zeros(P.r, P.c);
  let entropy = 0;
  for (let i = 0; i < P.r; i++) {
    const p = P.a.subarray(i*P.c, causal ? i*P.c + i + 1 : (i + 1)*P.c);
    const top = p.reduce((t, x) => Math.max(t, x));
    const e = p.map(x => Math.exp(x - top));
    const sum = e.reduce((t, x) => t + x);
    e.forEach((x, j) => { A.a[i*P.c + j] = x/sum; });
    entropy += Math.log(sum) - p.reduce((t, x, j) => t + (e[j] && e[j]*(x - top)), 0)/sum;
  }
  return {A, entropy: entropy/P.r};
}

function attend(t, R) {
  const m = t.width/t.heads;
  const heads = Array.from({length: t.heads}, () => {
    const K = spread(R, m, m);
    const Q = mul(R, normals(R.c, K.c));
    const P = scale(times(Q, K), t.score);
    const V = spread(R, m, m);
    const seen = weights(P, t.causal);
    return {K, Q, P, V, ...seen, B: scale(mul(seen.A, V), t.branch/Math.sqrt(t.heads))};
  });
  const F = heads.map(h => square(h.B)).reduce((A, B) => plus(A, B));
  return {heads, F, back: attendBack};
}

function attendBack(t, {heads, F}, S, E, R) {
  const m = t.width/t.heads;
  const c = t.branch/Math.sqrt(t.heads);
  const fresh = heads.map(h => mul(E, normals(E.c, h.B.c)));
  const rest = heads.reduce((A, h, k) => plus(A, times(fresh[k], h.B), -1), S);
  const M = over(rest, F);
  let [T, dQ, dK, dV] = Array.from({length: 4}, () => zeros(R.r, R.r));
  heads.forEach((h, k) => {
    const g = plus(fresh[k], mul(M, h.B));
    const dA = scale(times(g, h.V), c);
    const weighted = each(h.A, dA);
    const sums = Array.from({length: R.r}, (_, i) => -total({a: weighted.a.subarray(i*R.r, (i + 1)*R.r)}));
    const dP = plus(weighted, rows(h.A, sums));
    const back = turned(dP);
    const queries = plus(scale(square(h.Q), 1/m), square(spread(R, m - h.K.c, m)));
    const values = plus(scale(square(g), 1/m), square(spread(E, m - h.V.c, m)));
    const A = turned(h.A);
    dQ = plus(dQ, times(mul(dP, square(h.K)), dP), t.score**2);
    dK = plus(dK, times(mul(back, queries), back), t.score**2);
    dV = plus(dV, times(mul(A, values), A), c*c);
    T = plus(T, plus(times(dP, h.P), plus(mul(back, h.P), mul(A, dA))));
  });
  const size = X => total(each(square(R), X));
  return {T, Σ: plus(dQ, plus(dK, dV)), sizes: {queries: size(dQ), values: size(dV)}};
}

// MLP with ReLU and 4n units; in the limit their moments, and 64 units on the way back.
const positive = x => x > 0 ? 1 : 0;
const relu = x => x > 0 ? x : 0;

function pairs(G, f) { // f of lengths² a, b, their covariance c, angle θ and √(ab − c²)
  return map(G, (c, k) => {
    const a = G.a[Math.floor(k/G.c)*(G.c + 1)];
    const b = G.a[(k % G.c)*(G.c + 1)];
    const height = Math.sqrt(Math.max(a*b - c*c, 0));
    return f(a, c, height, Math.PI - Math.atan2(height, c))/(2*Math.PI);
  });
}

function units(t, R) {
  const var2 = 2*t.branch**2;
  if (t.width === Infinity) {
    const K = pairs(square(R), (a, c, height, angle) => height + angle*c);
    return {F: scale(K, var2), back: unitsBack};
  }
  const h = mul(R, normals(R.c, 4*t.width));
  return {h, F: scale(square(map(h, relu)), var2/h.c), back: unitsBack};
}

function unitsBack(t, {h, F}, S, E, R) {
  const G = square(R);
  const limit = !h;
  h ??= mul(R, normals(R.c, 64));
  const c = Math.sqrt(2*t.branch**2/h.c);
  const B = scale(map(h, relu), c);
  let ξ = mul(E, normals(E.c, h.c));
  const known = times(ξ, B);
  const exact = limit ? times(mul(E, normals(E.c, R.r)), root(F)) : known;
  const M = over(plus(S, exact, -1), F);
  if (!limit) ξ = plus(ξ, mul(M, B));
  const slopes = map(h, positive);
  const dh = scale(each(slopes, ξ), c);
  if (!limit) return {T: times(dh, h), Σ: square(dh), sizes: {}};
  const β = pairs(G, (a, c, height, angle) => angle);
  const α = pairs(G, (a, c, height) => a > 0 ? height/a : 0);
  const W = scale(plus(M, over(plus(exact, known, -1), F)), 2*t.branch**2);
  const bend = mul(each(W, α), map(zeros(R.r, 1), () => 1));
  const T = plus(times(dh, h), plus(rows(G, bend.a), mul(each(W, β), G)));
  return {T, Σ: scale(each(square(E), β), 2*t.branch**2), sizes: {}};
}

// One residual sum: norm, branch, X + Y in the frame (1, X, beyond), norm.
function normed(x) {
  const B = cut(x, 1);
  const D = diagonal(square(B)).map(v => 1/Math.sqrt(v + 1e-5));
  return {D, u: rows(beside(zeros(x.r, 1), B), D)};
}

function step(t, x, branch) {
  const before = t.norm === "pre" ? normed(x) : {u: x};
  const R = root(square(before.u));
  const seen = branch(t, R);
  const C = root(seen.F);
  const near = scale(mul(C, normals(x.r, x.c)), 1/Math.sqrt(t.width));
  const y = beside(near, spread(C, t.width - x.c, t.width));
  const sum = plus(y, beside(x, zeros(x.r, x.r)));
  const after = t.norm === "post" ? normed(sum) : {u: sum};
  const out = beside(cut(after.u, 0, 1), root(square(cut(after.u, 1))));
  return {x, before, R, seen, y, sum, after, out};
}

// The gradient of X: its inner products C with 1 and X, and E with itself.
function framed(x) { // a row for 1 above the tokens
  const F = zeros(x.r + 1, x.c);
  F.a[0] = 1;
  F.a.set(x.a, x.c);
  return F;
}

function beforeNorm({C, E}, {u, D}, n) {
  const X = cut(C, 1);
  const t = diagonal(X);
  const along = rows(square(u), t);
  const half = turned(rows(turned(plus(X, along, -.5)), t));
  const lost = plus(plus(half, turned(half)), square(cut(C, 0, 1)));
  const inner = turned(rows(turned(plus(X, along, -1)), D.map(d => 1/d)));
  const kept = turned(rows(turned(plus(E, lost, -1/n)), D));
  return {C: beside(zeros(u.r, 1), rows(inner, D)), E: rows(kept, D)};
}

function stepBack(t, {x, before, R, seen, y, sum, after}, g) {
  const n = t.width;
  const s = x.r;
  const {C, E} = t.norm === "post" ? beforeNorm(g, after, n) : g;
  // in the frame of the sum: along it as known, elsewhere uniformly random
  const frame = framed(sum);
  const M = square(frame);
  const known = over(C, M);
  const free = normals(s, frame.c);
  const N = plus(free, mul(over(times(free, frame), M), frame), -1);
  const T = spread(eye(s), n - frame.c, n);
  const H = plus(square(T), square(N), 1/n);
  const rest = root(plus(E, times(known, C), -1/n));
  const turn = over(times(rest, root(H)), H);
  const along = plus(mul(known, frame), mul(turn, N));
  const beyond = square(mul(turn, T));
  const dY = root(plus(beyond, square(along), 1/n));
  const {T: inner, Σ, sizes} = seen.back(t, seen, times(along, y), dY, R);
  // what comes through the branch, and its norm
  const u = before.u;
  let C2 = root(Σ);
  let d = mul(C2, normals(s, x.c));
  d = plus(d, mul(over(plus(inner, times(d, u), -1), square(u)), u));
  if (before.D) {
    d = rows(plus(d, rows(u, diagonal(inner)), -1), before.D);
    d = beside(zeros(s, 1), cut(d, 1));
    C2 = rows(C2, before.D);
  }
  // joined with what went past it
  const past = root(plus(beyond, square(cut(along, x.c)), 1/n));
  const all = plus(cut(along, 0, x.c), d);
  const near = plus(past, mul(C2, normals(s, s)), 1/Math.sqrt(n));
  const far = spread(C2, n - x.c - s, n);
  const size = plus(plus(square(near), square(far)), square(all), 1/n);
  return {g: {C: times(all, framed(x)), E: size}, sizes};
}

function cosine(x) { // mean over pairs of tokens
  const K = square(x);
  const d = diagonal(K).map(Math.sqrt);
  const cosines = map(K, (k, at) => k/(d[Math.floor(at/K.c)]*d[at % K.c]));
  return (total(cosines) - x.r)/(x.r*(x.r - 1));
}

// One network, block after block; to be run in slices. Settings t: tokens, layers, heads,
// score (σQσK), branch (σO), norm, mlp, causal, width. The loss reads the last token.
export function* network(t) {
  let x = beside(zeros(t.tokens, 1), eye(t.tokens));
  const found = {cosine: [cosine(x)], entropy: [], stream: [], queries: [], values: []};
  const blocks = [];
  for (let l = 0; l < t.layers; l++) {
    const steps = [step(t, x, attend)];
    if (t.mlp) steps.push(step(t, steps[0].out, units));
    x = steps.at(-1).out;
    blocks.push(steps);
    found.cosine.push(cosine(x));
    found.entropy.push(total({a: steps[0].seen.heads.map(h => h.entropy)})/t.heads);
    yield;
  }
  const last = map(zeros(t.tokens, 1), (_, i) => i === t.tokens - 1 ? 1 : 0);
  const along = mul(last, normals(1, x.c));
  const beyond = spread(last, t.width - x.c, t.width);
  let g = {C: times(along, framed(x)), E: plus(square(beyond), square(along), 1/t.width)};
  const norm = () => total({a: diagonal(g.E)});
  found.stream.unshift(norm());
  for (const steps of blocks.reverse()) {
    for (const one of steps.reverse()) {
      const back = stepBack(t, one, g);
      g = back.g;
      for (const [name, θ] of Object.entries(back.sizes)) found[name].unshift(θ);
    }
    found.stream.unshift(norm());
    yield;
  }
  return found;
}
