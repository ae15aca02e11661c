// stdout: Su Mo Tu We Th Fr Sa
// stdout:  1  2  3  4  5  6  7
// stdout:  8  9 10 11 12 13 14
// stdout: 15 16 17 18 19 20 21
// stdout: 22 23 24 25 26 27 28
function calendar(year, month) {
  const first = new Date(Date.UTC(year, month - 1, 1)).getUTCDay();
  const count = new Date(Date.UTC(year, month, 0)).getUTCDate();
  const cells = [...Array(first).fill("  "), ...Array.from({ length: count }, (_, i) => String(i + 1).padStart(2))];
  const lines = ["Su Mo Tu We Th Fr Sa"];
  while (cells.length) lines.push(cells.splice(0, 7).join(" "));
  return lines.join("\n");
}
console.log(calendar(2026, 2));
