// expect: {"insp":"{ a: [ 1, { b: 2 } ], s: 'x' }","fmt":"n=5","waited":2,"deep":true,"depth":"{ a: { b: [Object] } }","types":true}
const util = require("util");
const wait = util.promisify((ms, cb) => setTimeout(() => cb(null, ms), ms));
({
  insp: util.inspect({ a: [1, { b: 2 }], s: "x" }),
  fmt: util.format("%s=%d", "n", 5),
  waited: await wait(2),
  deep: util.isDeepStrictEqual({ a: 1 }, { a: 1 }),
  depth: util.inspect({ a: { b: { c: {} } } }, { depth: 1 }),
  types: util.types.isPromise(Promise.resolve()),
});
