// expect: {"a":1,"first":10,"third":30,"rest":{"d":4,"e":5},"x":9,"y":null,"zs":[3,4],"s":[2,1],"merged":{"a":1,"b":3,"c":4},"sum":6,"len":1}
const { a, b: { c: [first, , third] = [] } = {}, ...rest } = { a: 1, b: { c: [10, 20, 30] }, d: 4, e: 5 };
const [x = 9, y = 8, ...zs] = [undefined, null, 3, 4];
const swap = ([p, q]) => [q, p];
const merged = { ...{ a: 1, b: 2 }, b: 3, ...null, ...(true && { c: 4 }) };
const sum = (...ns) => ns.reduce((s, n) => s + n, 0);
({ a, first, third, rest, x, y, zs, s: swap([1, 2]), merged, sum: sum(...[1, 2], 3), len: ((a, b = 1, ...c) => {}).length });
