// expect: [4,99]
function debounce<A extends unknown[]>(fn: (...args: A) => void, ms: number) {
  let t: ReturnType<typeof setTimeout> | undefined;
  return (...args: A) => { clearTimeout(t); t = setTimeout(() => fn(...args), ms); };
}
const calls: number[] = [];
const d = debounce((n: number) => calls.push(n), 15);
for (let i = 0; i < 5; i++) d(i);
await new Promise((r) => setTimeout(r, 60));
d(99);
await new Promise((r) => setTimeout(r, 60));
calls;
