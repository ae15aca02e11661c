// expect: {"product":[[2,1],[4,3]],"t":[[1,4],[2,5],[3,6]],"det":49}
// stdout: [ [ 2, 1 ], [ 4, 3 ] ]
type Matrix = number[][];
const multiply = (a: Matrix, b: Matrix): Matrix => a.map((row) => b[0].map((_, j) => row.reduce((s, x, k) => s + x * b[k][j], 0)));
const transpose = (m: Matrix): Matrix => m[0].map((_, i) => m.map((r) => r[i]));
const det = (m: Matrix): number =>
  m.length === 1 ? m[0][0] : m[0].reduce((s, x, j) => s + (-1) ** j * x * det(m.slice(1).map((r) => r.filter((_, k) => k !== j))), 0);
const a: Matrix = [[1, 2], [3, 4]], b: Matrix = [[0, 1], [1, 0]];
console.log(multiply(a, b));
({ product: multiply(a, b), t: transpose([[1, 2, 3], [4, 5, 6]]), det: det([[2, -3, 1], [2, 0, -1], [1, 4, 5]]) });
