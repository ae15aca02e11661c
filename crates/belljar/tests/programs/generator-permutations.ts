// expect: {"perms":["abc","acb","bac","bca","cab","cba"],"combos":6}
function* permutations<T>(items: T[]): Generator<T[]> {
  if (items.length <= 1) { yield items; return; }
  for (let i = 0; i < items.length; i++) {
    const rest = [...items.slice(0, i), ...items.slice(i + 1)];
    for (const p of permutations(rest)) yield [items[i], ...p];
  }
}
function* combinations<T>(xs: T[], k: number, from = 0, acc: T[] = []): Generator<T[]> {
  if (acc.length === k) return yield acc;
  for (let i = from; i < xs.length; i++) yield* combinations(xs, k, i + 1, [...acc, xs[i]]);
}
({ perms: [...permutations(["a", "b", "c"])].map((p) => p.join("")), combos: [...combinations([1, 2, 3, 4], 2)].length });
