// expect: [[2,4,6],["a1","b2"],[4,9,16],true,[0,"a",1,"b"]]
const evens = Iterator.from([1, 2, 3, 4, 5, 6]).filter((x) => x % 2 === 0);
const mapped = new Map([["a", 1], ["b", 2]]).entries().map(([k, v]) => k + v).toArray();
const lazily = function* () { let i = 0; while (true) yield i++; }().map((x) => x * x).drop(2).take(3).toArray();
[evens.toArray(), mapped, lazily, [1, 2].values().some((x) => x > 1), [..."ab"].entries().flatMap(([i, c]) => [i, c]).toArray()];
