// expect: {"best":15,"chosen":["b","c","d","e"]}
const items: Array<{ name: string; weight: number; value: number }> = [
  { name: "a", weight: 12, value: 4 }, { name: "b", weight: 2, value: 2 }, { name: "c", weight: 1, value: 1 },
  { name: "d", weight: 4, value: 10 }, { name: "e", weight: 1, value: 2 },
];
const capacity = 15;
const dp: number[][] = Array.from({ length: items.length + 1 }, () => Array(capacity + 1).fill(0));
items.forEach(({ weight, value }, i) => {
  for (let w = 0; w <= capacity; w++) {
    dp[i + 1][w] = weight > w ? dp[i][w] : Math.max(dp[i][w], dp[i][w - weight] + value);
  }
});
const chosen: string[] = [];
for (let i = items.length, w = capacity; i > 0; i--) {
  if (dp[i][w] !== dp[i - 1][w]) { chosen.unshift(items[i - 1].name); w -= items[i - 1].weight; }
}
({ best: dp[items.length][capacity], chosen });
