// expect: [true,false,true,true,true,false,false]
function deepEqual(a, b) {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || !a || !b) return false;
  if (a.constructor !== b.constructor) return false;
  if (a instanceof Date) return a.getTime() === b.getTime();
  if (a instanceof Map) return a.size === b.size && [...a].every(([k, v]) => b.has(k) && deepEqual(v, b.get(k)));
  if (a instanceof Set) return a.size === b.size && [...a].every((v) => b.has(v));
  const ka = Object.keys(a), kb = Object.keys(b);
  return ka.length === kb.length && ka.every((k) => Object.hasOwn(b, k) && deepEqual(a[k], b[k]));
}
[
  deepEqual({ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] }), deepEqual([1, 2], [2, 1]), deepEqual(NaN, NaN),
  deepEqual(new Date(5), new Date(5)), deepEqual(new Map([[1, { x: 1 }]]), new Map([[1, { x: 1 }]])), deepEqual({ a: undefined }, {}), deepEqual(0, -0),
];
