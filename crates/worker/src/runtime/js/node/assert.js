(load, native) => {
  "use strict";
  const { inspect } = load("internal:inspect");
  const { isDeepStrictEqual, isDeepEqual } = load("internal:equal");
  class AssertionError extends Error {
    constructor({ message, actual, expected, operator } = {}) {
      super(message ?? `${inspect(actual)} ${operator} ${inspect(expected)}`);
      Object.assign(this, { name: "AssertionError", code: "ERR_ASSERTION", actual, expected, operator, generatedMessage: message === undefined });
    }
  }
  const fail = (message, actual, expected, operator) => {
    if (message instanceof Error) throw message;
    throw new AssertionError({ message, actual, expected, operator });
  };
  const ok = (value, message) => { if (!value) fail(message ?? `The expression evaluated to a falsy value: ${inspect(value)}`, value, true, "=="); };
  const compare = (test, words, operator) => (actual, expected, message) => {
    if (!test(actual, expected)) fail(message ?? `${words}:\n\n${inspect(actual)} ${operator} ${inspect(expected)}\n`, actual, expected, operator);
  };
  const fits = (error, expected, message) => {
    if (expected === undefined) return;
    if (typeof expected === "function") {
      if (expected.prototype !== undefined && error instanceof expected) return;
      if (Error.isPrototypeOf?.(expected) || expected === Error) throw error;
      if (expected.call({}, error) === true) return;
      fail(message ?? "the validation function did not return true", error, expected, "throws");
    } else if (expected instanceof RegExp) {
      if (!expected.test(String(error))) fail(message ?? `${inspect(String(error))} does not match ${expected}`, error, expected, "throws");
    } else if (typeof expected === "object") {
      for (const key of [...Object.keys(expected), ...(expected instanceof Error ? ["name", "message"] : [])]) {
        const same = expected[key] instanceof RegExp && typeof error[key] === "string" ? expected[key].test(error[key]) : isDeepStrictEqual(error[key], expected[key]);
        if (!same) fail(message ?? `${key}: ${inspect(error[key])} is not ${inspect(expected[key])}`, error, expected, "throws");
      }
    }
  };
  const assert = Object.assign((value, message) => ok(value, message), {
    AssertionError, ok,
    equal: compare((a, b) => a == b || (a !== a && b !== b), "Expected values to be loosely equal", "=="),
    notEqual: compare((a, b) => !(a == b), "Expected values to be loosely unequal", "!="),
    strictEqual: compare(Object.is, "Expected values to be strictly equal", "!=="),
    notStrictEqual: compare((a, b) => !Object.is(a, b), "Expected values to be strictly unequal", "==="),
    deepEqual: compare(isDeepEqual, "Expected values to be loosely deep-equal", "should loosely deep-equal"),
    notDeepEqual: compare((a, b) => !isDeepEqual(a, b), "Expected values not to be loosely deep-equal", "should not loosely deep-equal"),
    deepStrictEqual: compare(isDeepStrictEqual, "Expected values to be strictly deep-equal", "should deep-equal"),
    notDeepStrictEqual: compare((a, b) => !isDeepStrictEqual(a, b), "Expected values not to be strictly deep-equal", "should not deep-equal"),
    match: compare((text, pattern) => typeof text === "string" && pattern.test(text), "The input did not match", "~"),
    doesNotMatch: compare((text, pattern) => !pattern.test(text), "The input was expected to not match", "!~"),
    fail: (message = "Failed") => fail(message, undefined, undefined, "fail"),
    ifError: (error) => { if (error !== null && error !== undefined) throw error; },
    throws(work, expected, message) {
      let error;
      try { work(); } catch (thrown) { error = [thrown]; }
      if (!error) fail(typeof expected === "string" ? expected : message ?? "Missing expected exception.", undefined, expected, "throws");
      if (typeof expected !== "string") fits(error[0], expected, message);
    },
    doesNotThrow(work, message) { try { work(); } catch (error) { fail(typeof message === "string" ? message : `Got unwanted exception: ${error?.message}`, error, undefined, "doesNotThrow"); } },
    async rejects(work, expected, message) {
      let error;
      try { await (typeof work === "function" ? work() : work); } catch (thrown) { error = [thrown]; }
      if (!error) fail(message ?? "Missing expected rejection.", undefined, expected, "rejects");
      fits(error[0], expected, message);
    },
    async doesNotReject(work, message) { try { await (typeof work === "function" ? work() : work); } catch (error) { fail(message ?? `Got unwanted rejection: ${error?.message}`, error, undefined, "doesNotReject"); } },
  });
  const strict = Object.assign((value, message) => ok(value, message), assert, { equal: assert.strictEqual, notEqual: assert.notStrictEqual, deepEqual: assert.deepStrictEqual, notDeepEqual: assert.notDeepStrictEqual });
  assert.strict = strict.strict = strict;
  return assert;
}
