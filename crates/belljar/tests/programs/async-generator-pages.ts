// expect: {"all":[0,1,2,3,4,5,6,7],"count":2,"fromAsync":[[0,1],[2]]}
async function* pages(total: number, size: number): AsyncGenerator<number[]> {
  for (let start = 0; start < total; start += size) {
    await new Promise((r) => setTimeout(r, 1));
    yield Array.from({ length: Math.min(size, total - start) }, (_, i) => start + i);
  }
}
const all: number[] = [];
let count = 0;
for await (const page of pages(10, 4)) {
  all.push(...page);
  count++;
  if (all.length >= 8) break;
}
const fromAsync = await Array.fromAsync(pages(3, 2));
return { all, count, fromAsync };
