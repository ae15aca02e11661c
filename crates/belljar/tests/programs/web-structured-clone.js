// expect: {"orig":[1,2],"copy":[1,2,3],"date":true,"set":true,"cyc":true,"fail":"DataCloneError","buf":7}
const original = { date: new Date(0), map: new Map([["k", new Set([1])]]), nested: { arr: [1, 2] }, re: /a/g, big: 5n, buf: new Uint8Array([7]) };
original.self = original;
const copy = structuredClone(original);
copy.nested.arr.push(3);
let fail;
try { structuredClone({ f() {} }); } catch (e) { fail = e.name; }
({ orig: original.nested.arr, copy: copy.nested.arr, date: copy.date instanceof Date, set: copy.map.get("k").has(1), cyc: copy.self === copy, fail, buf: copy.buf[0] });
