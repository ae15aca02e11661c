// Deep equality, strict as in `assert.deepStrictEqual` and loose as in `assert.deepEqual`.
() => {
  "use strict";
  const equal = (strict) => {
    const same = (a, b, seen) => {
      if (strict ? Object.is(a, b) : a == b || (a !== a && b !== b)) return true;
      if (a === null || b === null || typeof a !== "object" || typeof b !== "object") return false;
      if (strict && Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
      if (Array.isArray(a) !== Array.isArray(b)) return false;
      if (seen.some(([x, y]) => x === a && y === b)) return true;
      const inner = [...seen, [a, b]];
      if (a instanceof Date && b instanceof Date) { if (a.getTime() !== b.getTime()) return false; }
      else if (a instanceof RegExp && b instanceof RegExp) { if (String(a) !== String(b)) return false; }
      else if (a instanceof Error && b instanceof Error) { if (a.message !== b.message || a.name !== b.name) return false; }
      else if (a instanceof Number || a instanceof String || a instanceof Boolean) { if (!Object.is(a.valueOf(), b.valueOf())) return false; }
      if (a instanceof Set) {
        if (!(b instanceof Set) || a.size !== b.size) return false;
        for (const item of a) if (!b.has(item) && ![...b].some((other) => same(item, other, inner))) return false;
      } else if (a instanceof Map) {
        if (!(b instanceof Map) || a.size !== b.size) return false;
        for (const [key, value] of a) {
          const found = b.has(key) ? [key] : [...b.keys()].filter((other) => same(key, other, inner));
          if (!found.some((other) => same(value, b.get(other), inner))) return false;
        }
      }
      const keys = Object.keys(a);
      if (keys.length !== Object.keys(b).length) return false;
      return keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key], inner));
    };
    return (a, b) => same(a, b, []);
  };
  return { isDeepStrictEqual: equal(true), isDeepEqual: equal(false) };
}
