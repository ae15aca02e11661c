// expect: 4
// stdout:   a
// stdout: - b
// stdout: + x
// stdout:   c
// stdout: - d
// stdout:   e
// stdout: + f
const before = ["a", "b", "c", "d", "e"];
const after = ["a", "x", "c", "e", "f"];
function diff(a, b) {
  const lcs = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      lcs[i][j] = a[i] === b[j] ? lcs[i + 1][j + 1] + 1 : Math.max(lcs[i + 1][j], lcs[i][j + 1]);
  const out = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { out.push("  " + a[i]); i++; j++; }
    else if (j < b.length && (i === a.length || lcs[i][j + 1] > lcs[i + 1][j])) out.push("+ " + b[j++]);
    else out.push("- " + a[i++]);
  }
  return out;
}
const d = diff(before, after);
console.log(d.join("\n"));
d.filter((l) => l[0] !== " ").length;
