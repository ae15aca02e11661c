// Converts the result of a program to JSON. Accepts all values, including those that `JSON.stringify` refuses.
(load, native) => {
  "use strict";
  const DEEPEST = 400;
  // Maximum number of characters. A larger result does not fit into a frame.
  const LARGEST = 31 << 20;
  let size = 0;
  const grown = (by) => {
    size += by;
    if (size > LARGEST) throw new RangeError(`the result is larger than ${LARGEST} characters of JSON: write it to a file in /workspace`);
  };
  const bytes = (view) => ({ type: "bytes", base64: new Uint8Array(view.buffer, view.byteOffset, view.byteLength).toBase64() });
  const named = (value) => {
    const make = value.constructor;
    return typeof make === "function" ? make.name : "";
  };

  const plain = (value, above) => {
    switch (typeof value) {
      case "string": grown(value.length + 3); return value.isWellFormed() ? value : value.toWellFormed();
      case "number": case "boolean": grown(2); return value;
      case "bigint": return String(value);
      case "object": break;
      default: return undefined;
    }
    if (value === null) return null;
    if (above.includes(value)) return "[Circular]";
    if (above.length >= DEEPEST) return "[Deeper than can be shown]";
    grown(2);
    above.push(value);
    try { return object(value, above); } finally { above.pop(); }
  };

  const list = (values, above) => {
    const all = Array.isArray(values) ? values : [...values];
    const out = new Array(all.length);
    for (let at = 0; at < all.length; at++) out[at] = plain(all[at], above) ?? null;
    return out;
  };

  const object = (value, above) => {
    if (value instanceof Uint8Array || value instanceof DataView) return bytes(value);
    if (value instanceof ArrayBuffer) return bytes(new Uint8Array(value));
    if (Array.isArray(value) || ArrayBuffer.isView(value)) return list(value, above);
    if (value instanceof Map) {
      const keys = [...value.keys()];
      if (!keys.every((key) => typeof key === "string" || typeof key === "number")) {
        return list([...value].map((entry) => [...entry]), above);
      }
      return members(keys.map((key) => [String(key), value.get(key)]), above);
    }
    if (value instanceof Set) return list(value, above);
    if (value instanceof Error) {
      const own = [["name", value.name], ["message", value.message], ["stack", value.stack]];
      if (value.cause !== undefined) own.push(["cause", value.cause]);
      if (value.errors !== undefined) own.push(["errors", value.errors]);
      for (const key of Object.keys(value)) if (!own.some(([known]) => known === key)) own.push([key, value[key]]);
      return members(own, above);
    }
    if (typeof value.toJSON === "function") return plain(value.toJSON(""), above);
    if (value instanceof String || value instanceof Number || value instanceof Boolean) return plain(value.valueOf(), above);
    if (value instanceof RegExp) return String(value);
    switch (named(value)) {
      case "Headers": case "URLSearchParams": case "FormData":
        return members([...value].map(([key, item]) => [key, item]), above);
      case "Response":
        return members([["status", value.status], ["statusText", value.statusText], ["ok", value.ok], ["url", value.url], ["headers", value.headers]], above);
    }
    return members(Object.keys(value).map((key) => [key, value[key]]), above);
  };

  const members = (entries, above) => {
    const out = Object.create(null);
    for (const [key, value] of entries) {
      const made = plain(value, above);
      if (made !== undefined) out[key.toWellFormed()] = made;
    }
    return out;
  };

  return (value) => {
    size = 0;
    return JSON.stringify(plain(value, []));
  };
}
