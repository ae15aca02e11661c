// expect: [0,0,2,4,5]
function bisect<T>(xs: readonly T[], target: T, cmp: (a: T, b: T) => number): number {
  let lo = 0, hi = xs.length;
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (cmp(xs[mid], target) < 0) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}
const xs = [1, 3, 5, 7, 9] as const;
return [0, 1, 4, 9, 10].map((t) => bisect(xs, t as any, (a, b) => a - b));
