// expect: [4,92]
// stdout: .Q....
// stdout: ...Q..
// stdout: .....Q
// stdout: Q.....
// stdout: ..Q...
// stdout: ....Q.
function solve(n) {
  const out = [];
  const place = (row, cols) => {
    if (row === n) return out.push(cols);
    for (let c = 0; c < n; c++) {
      if (cols.every((cc, r) => cc !== c && Math.abs(cc - c) !== row - r)) place(row + 1, [...cols, c]);
    }
  };
  place(0, []);
  return out;
}
const s = solve(6);
console.log(s[0].map((c) => ".".repeat(c) + "Q" + ".".repeat(5 - c)).join("\n"));
[s.length, solve(8).length];
