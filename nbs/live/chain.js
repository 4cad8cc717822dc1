// A random transformer of any width, there and back, its matrices integrated out. A row
// is a token: n coordinates, the last along the mean; in a frame of tokens for n = ∞.
import {beside, cut, dot, drawn, eye, filled, map, minus, mul, over, plus, root, scale,
        square, times, turned, wide} from "./matrices.js";

const sum = a => a.reduce((x, y) => x + y);
const mean = a => sum(a)/a.length;
const unit = x => x.map(a => a.map(v => v/Math.sqrt(dot(a, a))));
const cosine = x => (mean(square(unit(x)).flat())*x.length - 1)/(x.length - 1);
const entropy = a => -sum(a.map(x => x > 0 ? x*Math.log(x) : 0));
const spread = (R, n) => n === Infinity ? R : scale(drawn(R, n), 1/Math.sqrt(n));

// For Y = B W and F = B Bᵀ: dY Wᵀ = g, given S = dY Yᵀ and E Eᵀ = dY dYᵀ.
function sent(S, E, B, F) {
  const ξ = drawn(E, wide(B));
  const M = over(minus(S, times(ξ, B)), F);
  return {ξ, M, g: plus(ξ, mul(M, B))};
}

function softmax(p) {
  const top = Math.max(...p);
  const e = p.map(x => Math.exp(x - top));
  return e.map(x => x/sum(e));
}

// One head adds B times normal numbers to tokens whose Gram matrix is R Rᵀ.
function head(t, R) {
  const m = t.width/t.heads;
  const c = t.branch/Math.sqrt(t.heads);
  const K = spread(R, m);
  const Q = drawn(R, wide(K));
  const P = scale(times(Q, K), t.score);
  const A = map(P, (x, i, k) => t.causal && k > i ? -Infinity : x).map(softmax);
  const V = scale(spread(R, m), c);
  const whole = (X, limit) => m === Infinity ? limit : scale(X, 1/Math.sqrt(m));
  function back(g, E) {
    const dA = times(g, V);
    const along = A.map((a, i) => dot(a, dA[i]));
    const dP = map(A, (a, i, k) => a*(dA[i][k] - along[i]));
    const dQ = scale(mul(dP, K), t.score);
    const dK = scale(mul(turned(dP), whole(Q, R)), t.score);
    const dV = scale(mul(turned(A), whole(g, E)), c);
    const T = plus(times(dP, P), plus(mul(turned(dP), P), mul(turned(A), dA)));
    return {T, Σ: [dQ, dK, dV].map(square).reduce(plus)};
  }
  return {A, B: mul(A, V), back};
}

function attend(t, R) {
  const heads = Array.from({length: t.heads}, () => head(t, R));
  const B = beside(...heads.map(h => h.B));
  const F = square(B);
  function back(S, E) {
    const {g} = sent(S, E, B, F);
    const c = wide(g)/t.heads;
    const parts = heads.map((h, k) => h.back(cut(g, k*c, (k + 1)*c), E));
    return {T: parts.map(p => p.T).reduce(plus), Σ: parts.map(p => p.Σ).reduce(plus)};
  }
  return {F, back, entropy: mean(heads.flatMap(h => h.A.map(entropy)))};
}

// 4n units with ReLU; of infinitely many the moments, and 64 for what is random.
function units(t, R) {
  const finite = t.width < Infinity;
  const h = drawn(R, finite ? 4*t.width : 64);
  const c = t.branch*Math.sqrt(2/wide(h));
  const on = X => map(X, (x, i, k) => h[i][k] > 0 ? c*x : 0);
  const B = on(h);
  const v = t.branch**2/Math.PI;
  const G = square(R);
  const height = map(G, (x, i, k) => Math.sqrt(Math.max(G[i][i]*G[k][k] - x*x, 0)));
  const both = map(G, (x, i, k) => v*(Math.PI - Math.atan2(height[i][k], x)));
  const F = finite ? square(B) : map(G, (x, i, k) => v*height[i][k] + both[i][k]*x);
  function back(S, E) {
    const {ξ, M, g} = sent(S, E, B, F);
    const dh = on(finite ? g : ξ);
    if (finite) return {T: times(dh, h), Σ: square(dh)};
    const bend = M.map((m, i) => v*dot(m, height[i])/G[i][i]);
    const W = map(M, (x, i, k) => x*both[i][k] + (i === k ? bend[i] : 0));
    const Σ = map(square(E), (x, i, k) => x*both[i][k]);
    return {T: plus(times(dh, h), mul(W, G)), Σ};
  }
  return {F, back};
}

// √n times the coordinates of a gradient, and its Gram matrix.
const gradient = (n, d, E) => ({d, E: n < Infinity ? scale(square(d), 1/n) : E});

function normed(n, x, on) { // LayerNorm: without the mean, of length one
  if (!on) return {u: x, back: g => g};
  const centred = X => map(X, (v, _, k) => k === n - 1 ? 0 : v);
  const D = centred(x).map(a => 1/Math.sqrt(dot(a, a) + 1e-5));
  const u = map(centred(x), (v, i) => D[i]*v);
  function back({d, E}) {
    const along = d.map((a, i) => dot(a, u[i]));
    const free = map(centred(d), (v, i, k) => D[i]*(v - along[i]*u[i][k]));
    return gradient(n, free, map(E, (v, i, k) => D[i]*v*D[k]));
  }
  return {u, back};
}

// One residual sum z; for n = ∞ what is added is orthogonal to the stream.
function step(t, x, branch) {
  const n = t.width;
  const {u, back: throughNorm} = normed(n, x, t.norm === "pre-norm");
  const G = square(u);
  const {F, back: throughBranch, entropy} = branch(t, root(G));
  const C = spread(root(F), n);
  const y = n < Infinity ? C : beside(scale(x, 0), C);
  const z = map(y, (v, i, k) => k < wide(x) ? v + x[i][k] : v);
  const out = n < Infinity ? z : root(square(z));
  const after = normed(n, out, t.norm === "post-norm");
  function back(g) {
    const {d, E} = after.back(g);
    const R = root(E);
    const along = n < Infinity ? d : sent(times(d, out), R, z, square(z)).g;
    const {T, Σ} = throughBranch(times(along, y), R);
    const added = throughNorm(gradient(n, sent(T, root(Σ), u, G).g, Σ));
    return gradient(n, plus(cut(along, 0, wide(x)), added.d), plus(E, added.E));
  }
  return {x: after.u, back, entropy};
}

export async function network(t, rest) {
  const s = t.tokens;
  let x = filled(s, t.width < Infinity ? t.width : s, (i, k) => +(i === k));
  const found = {cosine: [cosine(x)], entropy: [], gradient: []};
  const blocks = [];
  for (let l = 0; l < t.layers; l++) {
    const first = step(t, x, attend);
    const second = t.mlp ? step(t, first.x, units) : {...first, back: g => g};
    x = second.x;
    blocks.unshift(g => first.back(second.back(g)));
    found.cosine.push(cosine(x));
    found.entropy.push(first.entropy);
    await rest();
  }
  const last = map(eye(s), (v, i) => i === s - 1 ? v : 0); // all that the loss reads
  let g = gradient(t.width, drawn(last, wide(x)), last);
  for (const back of [g => g, ...blocks]) {
    g = back(g);
    const norm = Math.sqrt(sum(g.E.map((e, i) => e[i])));
    found.gradient.unshift(norm < 1e154 ? norm : 1e154); // even if beyond numbers
    await rest();
  }
  return found;
}
