// Small random matrices, b networks side by side: {b, r, c, a}, entries row by row.
import {chi2, normal} from "./plot.js";

let pool = new Float64Array(2**17); // many small arrays out of one are cheaper
let used = 0;
export function zeros(b, r, c) {
  if (used + b*r*c > pool.length) {
    pool = new Float64Array(Math.max(2**17, b*r*c));
    used = 0;
  }
  used += b*r*c;
  return {b, r, c, a: pool.subarray(used - b*r*c, used)};
}

export function map(A, f) {
  const B = zeros(A.b, A.r, A.c);
  for (let k = 0; k < B.a.length; k++) B.a[k] = f(A.a[k], k);
  return B;
}

export const eye = (b, s) =>
  map(zeros(b, s, s), (_, k) => +(k % (s*s) % (s + 1) === 0));

export function normals(b, r, c) { // Marsaglia's polar method, two at a time
  const N = zeros(b, r, c);
  for (let k = 0; k < N.a.length; k += 2) {
    let x, y, square;
    do {
      x = 2*Math.random() - 1;
      y = 2*Math.random() - 1;
      square = x*x + y*y;
    } while (square >= 1 || square === 0);
    const f = Math.sqrt(-2*Math.log(square)/square);
    N.a[k] = f*x;
    if (k + 1 < N.a.length) N.a[k + 1] = f*y;
  }
  return N;
}

export function scale(A, x) {
  const B = zeros(A.b, A.r, A.c);
  for (let k = 0; k < B.a.length; k++) B.a[k] = x*A.a[k];
  return B;
}

export function each(A, B) {
  const C = zeros(A.b, A.r, A.c);
  for (let k = 0; k < C.a.length; k++) C.a[k] = A.a[k]*B.a[k];
  return C;
}

export function plus(A, B, x = 1) {
  const C = zeros(A.b, A.r, A.c);
  for (let k = 0; k < C.a.length; k++) C.a[k] = A.a[k] + x*B.a[k];
  return C;
}

export function rows(A, d) { // every row times a number
  const B = zeros(A.b, A.r, A.c);
  for (let i = 0, k = 0; i < d.length; i++) {
    for (const end = k + A.c; k < end; k++) B.a[k] = d[i]*A.a[k];
  }
  return B;
}

export function diagonal(A) {
  const d = new Float64Array(A.b*A.r);
  for (let i = 0; i < d.length; i++) d[i] = A.a[i*A.c + i % A.r];
  return d;
}

export function sums(a, count) { // of so many neighbours
  const t = new Float64Array(a.length/count);
  for (let k = 0; k < a.length; k++) t[k/count | 0] += a[k];
  return t;
}

export function cut(A, from, to = A.c) { // some columns
  const B = zeros(A.b, A.r, to - from);
  for (let i = 0, k = 0; k < B.a.length; i += A.c) {
    for (let j = from; j < to; j++) B.a[k++] = A.a[i + j];
  }
  return B;
}

export function beside(A, B) {
  const C = zeros(A.b, A.r, A.c + B.c);
  for (let i = 0, k = 0; i < A.b*A.r; i++) {
    for (let j = 0; j < A.c; j++) C.a[k++] = A.a[i*A.c + j];
    for (let j = 0; j < B.c; j++) C.a[k++] = B.a[i*B.c + j];
  }
  return C;
}

export function turned(A) {
  const B = zeros(A.b, A.c, A.r);
  let at = 0;
  for (let i = 0; i < A.b*A.r; i++) {
    const to = (i - i % A.r)*A.c + i % A.r;
    for (let j = 0; j < A.c; j++) B.a[to + j*A.r] = A.a[at++];
  }
  return B;
}

export function times(A, B) { // A Bᵀ
  const C = zeros(A.b, A.r, B.r);
  const [a, b, c] = [A.a, B.a, A.c];
  for (let n = 0, at = 0; n < A.b; n++) {
    for (let i = n*A.r*c; i < (n + 1)*A.r*c; i += c) {
      for (let j = n*B.r*c; j < (n + 1)*B.r*c; j += c) {
        let t = c % 2 ? a[i + c - 1]*b[j + c - 1] : 0;
        let u = 0; // two sums at a time are faster than one
        for (let k = 0; k < c - 1; k += 2) {
          t += a[i + k]*b[j + k];
          u += a[i + k + 1]*b[j + k + 1];
        }
        C.a[at++] = t + u;
      }
    }
  }
  return C;
}

export const mul = (A, B) => times(A, turned(B));

export function square(A) { // A Aᵀ
  const C = zeros(A.b, A.r, A.r);
  const [a, c, r] = [A.a, A.c, A.r];
  for (let n = 0; n < A.b; n++) {
    for (let i = 0; i < r; i++) {
      for (let j = 0; j <= i; j++) {
        let t = 0;
        for (let k = 0; k < c; k++) t += a[(n*r + i)*c + k]*a[(n*r + j)*c + k];
        C.a[(n*r + i)*r + j] = t;
        C.a[(n*r + j)*r + i] = t;
      }
    }
  }
  return C;
}

export const drawn = (R, k) => times(R, normals(R.b, k, R.c)); // R times normals

// Lower triangular L, L Lᵀ = S; a pivot below 10⁻¹² of its entry counts as zero.
export function root(S) {
  const s = S.r;
  const L = zeros(S.b, s, s);
  for (let n = 0; n < S.b; n++) {
    const [x, y] = [S, L].map(A => A.a.subarray(n*s*s, (n + 1)*s*s));
    for (let j = 0; j < s; j++) {
      for (let i = j; i < s; i++) {
        let t = x[i*s + j];
        for (let k = 0; k < j; k++) t -= y[i*s + k]*y[j*s + k];
        if (i === j) y[j*s + j] = t <= 1e-12*x[j*s + j] ? 0 : Math.sqrt(t);
        else y[i*s + j] = y[j*s + j] === 0 ? 0 : t/y[j*s + j];
      }
    }
  }
  return L;
}

// B S⁻, for rows of B in the range of S.
export function over(B, S) {
  const L = root(S).a;
  const s = S.r;
  const X = scale(B, 1);
  const x = X.a;
  for (let i = 0; i < B.b*B.r; i++) {
    const at = (i/B.r | 0)*s*s;
    for (let j = 0; j < s; j++) {
      let t = x[i*s + j];
      for (let k = 0; k < j; k++) t -= L[at + j*s + k]*x[i*s + k];
      x[i*s + j] = L[at + j*s + j] === 0 ? 0 : t/L[at + j*s + j];
    }
    for (let j = s - 1; j >= 0; j--) {
      let t = x[i*s + j];
      for (let k = j + 1; k < s; k++) t -= L[at + k*s + j]*x[i*s + k];
      x[i*s + j] = L[at + j*s + j] === 0 ? 0 : t/L[at + j*s + j];
    }
  }
  return X;
}

// R T/√n with T Tᵀ a Wishart matrix of some degrees of freedom; R itself for n = ∞.
export function spread(R, df, n) {
  if (n === Infinity) return R;
  const T = zeros(R.b, Math.min(R.c, df), R.c);
  for (let k = 0; k < T.a.length; k++) {
    const j = (k/R.c | 0) % T.r;
    const i = k % R.c;
    T.a[k] = i < j ? 0 : (i === j ? Math.sqrt(chi2(df - j)) : normal())/Math.sqrt(n);
  }
  return times(R, T);
}
