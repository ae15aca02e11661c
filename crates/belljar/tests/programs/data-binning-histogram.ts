// expect: {"0-4":4,"5-9":4,"10-14":1,"15-19":2,"20-24":1}
// stdout:    0-4 | ████
// stdout:    5-9 | ████
// stdout:  10-14 | █
// stdout:  15-19 | ██
// stdout:  20-24 | █
const values = [1, 2, 2, 3, 7, 8, 8, 8, 12, 15, 19, 20];
const binSize = 5;
const bins: Record<string, number> = {};
for (const v of values) {
  const lo = Math.floor(v / binSize) * binSize;
  const label = `${lo}-${lo + binSize - 1}`;
  bins[label] = (bins[label] || 0) + 1;
}
for (const [label, n] of Object.entries(bins)) {
  console.log(label.padStart(6), "|", "█".repeat(n));
}
return bins;
