// expect: {"solved":true,"firstRow":"534678912","lastRow":"345286179"}
const puzzle = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79";
const grid = [...puzzle].map((c) => (c === "." ? 0 : Number(c)));
const fits = (at: number, v: number): boolean => {
  const r = Math.floor(at / 9), c = at % 9, br = r - (r % 3), bc = c - (c % 3);
  for (let i = 0; i < 9; i++) {
    if (grid[r * 9 + i] === v || grid[i * 9 + c] === v || grid[(br + Math.floor(i / 3)) * 9 + bc + (i % 3)] === v) return false;
  }
  return true;
};
function solve(): boolean {
  const at = grid.indexOf(0);
  if (at < 0) return true;
  for (let v = 1; v <= 9; v++) {
    if (fits(at, v)) {
      grid[at] = v;
      if (solve()) return true;
      grid[at] = 0;
    }
  }
  return false;
}
const solved = solve();
return { solved, firstRow: grid.slice(0, 9).join(""), lastRow: grid.slice(72).join("") };
