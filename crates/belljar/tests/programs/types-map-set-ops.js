// expect: {"union":[1,2,3,4],"inter":[2,3],"diff":[1],"sym":[1,4],"sub":true,"m":{"x":10,"y":20},"weak":"v","size":3}
const a = new Set([1, 2, 3]), b = new Set([2, 3, 4]);
const m = new Map(Object.entries({ x: 1, y: 2 }));
m.forEach((v, k) => m.set(k, v * 10));
const weak = new WeakMap();
const key = {};
weak.set(key, "v");
({ union: [...a.union(b)], inter: [...a.intersection(b)], diff: [...a.difference(b)], sym: [...a.symmetricDifference(b)], sub: new Set([2]).isSubsetOf(a), m: Object.fromEntries(m), weak: weak.get(key), size: a.size });
