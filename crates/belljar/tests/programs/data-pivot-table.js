// expect: {"2026-01":{"north":10,"south":20,"west":0},"2026-02":{"north":15,"south":5,"west":8}}
// stdout: ┌─────────┬───────────┬───────┬───────┬──────┐
// stdout: │ (index) │ month     │ north │ south │ west │
// stdout: ├─────────┼───────────┼───────┼───────┼──────┤
// stdout: │ 0       │ '2026-01' │ 10    │ 20    │ 0    │
// stdout: │ 1       │ '2026-02' │ 15    │ 5     │ 8    │
// stdout: └─────────┴───────────┴───────┴───────┴──────┘
const sales = [
  ["2026-01", "north", 10], ["2026-01", "south", 20],
  ["2026-02", "north", 15], ["2026-02", "south", 5], ["2026-02", "west", 8],
];
const regions = [...new Set(sales.map(([, r]) => r))].sort();
const pivot = {};
for (const [month, region, amount] of sales) {
  pivot[month] ??= Object.fromEntries(regions.map((r) => [r, 0]));
  pivot[month][region] += amount;
}
console.table(Object.entries(pivot).map(([month, cols]) => ({ month, ...cols })));
return pivot;
