// Small matrices: arrays of rows.
import {normal} from "./plot.js";

export function filled(r, c, f) {
  const A = [];
  for (let i = 0; i < r; i++) {
    const row = new Array(c);
    for (let k = 0; k < c; k++) row[k] = f(i, k);
    A.push(row);
  }
  return A;
}

export function dot(a, b) {
  let sum = 0;
  for (let k = 0; k < a.length; k++) sum += a[k]*b[k];
  return sum;
}

export const wide = A => A[0].length;
export const eye = s => filled(s, s, (i, k) => +(i === k));
export const map = (A, f) => filled(A.length, wide(A), (i, k) => f(A[i][k], i, k));
export const scale = (A, x) => map(A, a => x*a);
export const plus = (A, B) => map(A, (a, i, k) => a + B[i][k]);
export const minus = (A, B) => map(A, (a, i, k) => a - B[i][k]);
export const turned = A => filled(wide(A), A.length, (i, k) => A[k][i]);
export const beside = (A, ...Bs) => A.map((a, i) => a.concat(...Bs.map(B => B[i])));
export const cut = (A, from, to) => A.map(a => a.slice(from, to));
export const times = (A, B) => filled(A.length, B.length, (i, k) => dot(A[i], B[k]));
export const mul = (A, B) => times(A, turned(B)); // A B, where times is A Bᵀ
export const square = A => times(A, A);
export const drawn = (R, c) => times(R, filled(c, wide(R), normal)); // R times normals

const solved = (A, L) => A.map(a => { // A L⁻ᵀ, and zero where a pivot of L is
  const x = [];
  L.forEach((row, j) => x.push(row[j] && (a[j] - dot(x, row))/row[j]));
  return x;
});

// Lower triangular L, L Lᵀ = S; a pivot below 10⁻¹² of its entry counts as zero.
export function root(S) {
  const L = [];
  S.forEach((row, i) => {
    const [x] = solved([row], L);
    const pivot = row[i] - dot(x, x);
    L.push([...x, pivot > 1e-12*row[i] ? Math.sqrt(pivot) : 0]);
  });
  return map(S, (_, i, k) => k <= i ? L[i][k] : 0);
}

export function over(A, S) { // A S⁻, for rows of A in the range of S
  const L = root(S);
  return times(solved(A, L), solved(eye(L.length), L));
}
