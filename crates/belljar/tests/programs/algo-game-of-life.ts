// expect: ["....",".###","###.","...."]
// stdout: ..#.
// stdout: #..#
// stdout: #..#
// stdout: .#..
type Grid = boolean[][];
let grid: Grid = ["....", ".###", "###.", "...."].map((r) => [...r].map((c) => c === "#"));
const step = (g: Grid): Grid => g.map((row, y) => row.map((alive, x) => {
  let n = 0;
  for (const dy of [-1, 0, 1]) for (const dx of [-1, 0, 1]) if ((dx || dy) && g[y + dy]?.[x + dx]) n++;
  return n === 3 || (alive && n === 2);
}));
const show = (g: Grid) => g.map((r) => r.map((c) => (c ? "#" : ".")).join("")).join("\n");
grid = step(grid);
console.log(show(grid));
show(step(grid)).split("\n");
