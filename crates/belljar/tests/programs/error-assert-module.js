// error: AssertionError at 8
import assert from "node:assert/strict";

assert.equal(1 + 1, 2);
assert.deepEqual({ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] });
assert.throws(() => { throw new TypeError("bad"); }, TypeError);
const order = { total: 41 };
assert.equal(order.total, 42, "total should be 42");
