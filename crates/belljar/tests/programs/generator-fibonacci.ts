// expect: 12586269025
// stdout: 0 1 1 2 3 5 8 13 21 34
function* fibonacci(): Generator<number, void, unknown> {
  let [a, b] = [0, 1];
  while (true) {
    yield a;
    [a, b] = [b, a + b];
  }
}
function* take<T>(it: Iterable<T>, n: number) {
  let i = 0;
  for (const x of it) { if (i++ >= n) return; yield x; }
}
console.log([...take(fibonacci(), 10)].join(" "));
const big = fibonacci().drop(50).next().value;
return big;
