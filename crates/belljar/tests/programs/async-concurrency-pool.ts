// expect: [25,9,64,1,4]
// stdout: { out: [ 25, 9, 64, 1, 4 ], peak: 2 }
async function pool<T, R>(items: T[], limit: number, fn: (item: T, index: number) => Promise<R>): Promise<R[]> {
  const results: R[] = new Array(items.length);
  let next = 0;
  async function worker() {
    while (next < items.length) {
      const i = next++;
      results[i] = await fn(items[i], i);
    }
  }
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
  return results;
}
let active = 0, peak = 0;
const out = await pool([5, 3, 8, 1, 2], 2, async (n) => {
  peak = Math.max(peak, ++active);
  await new Promise((r) => setTimeout(r, n));
  active--;
  return n * n;
});
console.log({ out, peak });
out;
