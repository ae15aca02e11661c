// `structuredClone`: deep copies of data, including cycles.
(function (native, part, global) {
  const fail = (what) => new (part("events").DOMException)(`${what} could not be cloned.`, "DataCloneError");
  const ERRORS = ["Error", "EvalError", "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError"];
  const tag = (value) => Object.prototype.toString.call(value).slice(8, -1);
  const described = (value) => {
    try { return typeof value === "symbol" ? value.toString() : typeof value === "function" ? `${value}`.slice(0, 80) : `#<${value?.constructor?.name ?? "Object"}>`; } catch { return "a value"; }
  };

  const structuredClone = (value, options = {}) => {
    const known = new Map();
    const keep = (from, to) => (known.set(from, to), to);
    for (const it of options?.transfer ?? []) {
      if (!(it instanceof ArrayBuffer)) throw fail(described(it));
      keep(it, it.transfer());
    }
    const plain = (from, to) => {
      for (const name of Object.keys(from)) to[name] = copy(from[name]);
      return to;
    };
    const copy = (from) => {
      if (typeof from === "symbol" || typeof from === "function") throw fail(described(from));
      if (typeof from !== "object" || from === null) return from;
      if (known.has(from)) return known.get(from);
      if (Array.isArray(from)) {
        const made = keep(from, []);
        made.length = from.length;
        return plain(from, made);
      }
      if (ArrayBuffer.isView(from)) {
        const buffer = copy(from.buffer);
        const Kind = global[from[Symbol.toStringTag] ?? "DataView"] ?? Uint8Array;
        return keep(from, new Kind(buffer, from.byteOffset, from instanceof DataView ? from.byteLength : from.length));
      }
      if (from instanceof Error) {
        const name = ERRORS.includes(from.name) ? from.name : "Error";
        const made = keep(from, Object.create(global[name].prototype));
        const real = new global[name](from.message, "cause" in from ? { cause: copy(from.cause) } : undefined);
        known.set(from, real);
        if (typeof from.stack === "string") Object.defineProperty(real, "stack", { value: from.stack, writable: true, configurable: true });
        return made && real;
      }
      switch (tag(from)) {
        case "Date": return keep(from, new Date(from.getTime()));
        case "RegExp": return keep(from, new RegExp(from.source, from.flags));
        case "ArrayBuffer": return keep(from, from.slice(0));
        case "Boolean": case "Number": case "String": case "BigInt": return keep(from, Object(from.valueOf()));
        case "Map": {
          const made = keep(from, new Map());
          for (const [name, it] of [...from]) made.set(copy(name), copy(it));
          return made;
        }
        case "Set": {
          const made = keep(from, new Set());
          for (const it of [...from]) made.add(copy(it));
          return made;
        }
        case "Blob": case "File": {
          const { Blob, File, share } = part("blob");
          return keep(from, share(from, from instanceof File ? new File([], from.name, { lastModified: from.lastModified }) : new Blob()));
        }
        case "Object": return plain(from, keep(from, {}));
        default: throw fail(described(from));
      }
    };
    return copy(value);
  };
  return { structuredClone };
})
