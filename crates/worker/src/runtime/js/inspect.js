// Formats values as Node does, with limits for depth, breadth and length.
(load, native) => {
  "use strict";
  const CUSTOM = Symbol.for("nodejs.util.inspect.custom");
  const DEFAULTS = { depth: 4, breakLength: 80, maxArrayLength: 100, maxStringLength: 10000, showHidden: false, sorted: false, getters: false };
  // Maximum number of values in one call. The rest is replaced by dots.
  const MOST = 20000;
  const NAME = /^[a-zA-Z_$][\w$]*$/;
  const ESCAPES = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\v": "\\v", "\\": "\\\\" };

  const quote = (text) => {
    const mark = !text.includes("'") ? "'" : !text.includes('"') ? '"' : !text.includes("`") ? "`" : "'";
    const inner = text.replace(/[\x00-\x1f\x7f\\]|\p{Surrogate}/gu, (c) =>
      ESCAPES[c] ?? (c.charCodeAt(0) > 0xff ? "\\u" + c.charCodeAt(0).toString(16) : "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0").toUpperCase()));
    return mark + (mark === "'" ? inner.replaceAll("'", "\\'") : inner) + mark;
  };
  const number = (value) => (Object.is(value, -0) ? "-0" : String(value));
  const clip = (text, most) => (text.length > most ? `${text.slice(0, most)}... ${text.length - most} more characters` : text);

  const primitive = (value, options) => {
    switch (typeof value) {
      case "string": {
        const most = options.maxStringLength ?? Infinity;
        return value.length > most ? `${quote(value.slice(0, most))}... ${value.length - most} more characters` : quote(value);
      }
      case "number": return number(value);
      case "bigint": return `${value}n`;
      case "symbol": return value.toString();
      default: return String(value);
    }
  };

  // Returns the class name of an object, or null if it has no prototype.
  const className = (value) => {
    for (let at = value; at !== null; at = Object.getPrototypeOf(at)) {
      const own = Object.getOwnPropertyDescriptor(at, "constructor");
      if (own && typeof own.value === "function" && own.value.name && (at !== value || Object.getPrototypeOf(at) === null)) {
        return own.value.name;
      }
    }
    return null;
  };
  const tagOf = (value) => {
    try {
      const tag = value[Symbol.toStringTag];
      return typeof tag === "string" ? tag : "";
    } catch { return ""; }
  };
  const prefix = (value, usual, size) => {
    const name = className(value) ?? `[${usual}: null prototype]`;
    const tag = tagOf(value);
    const head = size === undefined ? name : `${name}(${size})`;
    return `${head} ${tag && tag !== name ? `[${tag}] ` : ""}`;
  };

  const functionBase = (value) => {
    const text = Function.prototype.toString.call(value);
    if (/^class\b/.test(text)) {
      const parent = Object.getPrototypeOf(value)?.name;
      return `[class ${value.name || "(anonymous)"}${parent ? ` extends ${parent}` : ""}]`;
    }
    const kind = tagOf(value) || "Function";
    return `[${kind}${value.name ? `: ${value.name}` : " (anonymous)"}]`;
  };

  const errorText = (error, state) => {
    const stack = safely(() => error.stack);
    const bare = typeof stack !== "string" || !stack.includes("\n");
    const text = bare ? `[${safely(() => Error.prototype.toString.call(error)) ?? "Error"}]` : stack.trimEnd();
    return state.level ? text.replaceAll("\n", "\n" + "  ".repeat(state.level)) : text;
  };

  const show = (value, options, state) => {
    if (value === null || (typeof value !== "object" && typeof value !== "function")) return primitive(value, options);
    if (++state.count > MOST) return "...";
    const custom = safely(() => value[CUSTOM]);
    if (typeof custom === "function" && custom !== inspect) {
      const left = options.depth === null ? null : options.depth - state.level;
      const made = custom.call(value, left, { ...options, stylize: (text) => String(text) }, inspect);
      if (made !== value) return typeof made === "string" ? made.replaceAll("\n", "\n" + "  ".repeat(state.level)) : show(made, options, state);
    }
    if (state.above.includes(value)) {
      if (!state.circular.has(value)) state.circular.set(value, state.circular.size + 1);
      return `[Circular *${state.circular.get(value)}]`;
    }
    state.above.push(value);
    try {
      const text = complex(value, options, state);
      const reference = state.circular.get(value);
      return reference ? `<ref *${reference}> ${text}` : text;
    } finally { state.above.pop(); }
  };
  const safely = (get) => { try { return get(); } catch { return undefined; } };

  const keysOf = (value, options) => {
    const keys = options.showHidden ? Object.getOwnPropertyNames(value) : Object.keys(value);
    const symbols = Object.getOwnPropertySymbols(value).filter((key) => options.showHidden || Object.prototype.propertyIsEnumerable.call(value, key));
    if (options.sorted) keys.sort(typeof options.sorted === "function" ? options.sorted : undefined);
    return [...keys, ...symbols];
  };

  const complex = (value, options, state) => {
    let keys = safely(() => keysOf(value, options)) ?? [];
    let braces = ["{", "}"];
    let base = "";
    let entries = null;
    if (Array.isArray(value)) {
      keys = keys.filter((key) => typeof key === "symbol" || !/^(0|[1-9]\d*)$/.test(key));
      const name = className(value);
      braces = [`${name === "Array" ? "" : prefix(value, "Array", value.length)}[`, "]"];
      entries = () => items(value, options, state);
    } else if (value instanceof Set) {
      braces[0] = `${prefix(value, "Set", value.size)}{`;
      entries = () => many([...value], options, (item) => show(item, options, state));
    } else if (value instanceof Map) {
      braces[0] = `${prefix(value, "Map", value.size)}{`;
      entries = () => many([...value], options, ([key, item]) => `${show(key, options, state)} => ${show(item, options, state)}`);
    } else if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
      keys = keys.filter((key) => typeof key === "symbol" || !/^\d+$/.test(key));
      braces = [`${prefix(value, "TypedArray", value.length)}[`, "]"];
      entries = () => many(value, options, (item) => primitive(item, options));
    } else if (value instanceof ArrayBuffer) {
      const most = 50;
      const hex = new Uint8Array(value).subarray(0, most).toHex().replace(/..(?=.)/g, "$& ");
      const more = value.byteLength > most ? ` ... ${value.byteLength - most} more bytes` : "";
      braces[0] = `${prefix(value, "ArrayBuffer")}{`;
      entries = () => [`[Uint8Contents]: <${hex}${more}>`, `byteLength: ${value.byteLength}`];
    } else if (typeof value === "function") {
      base = functionBase(value);
      if (!keys.length) return base;
    } else if (value instanceof RegExp) {
      base = RegExp.prototype.toString.call(value);
      if (!keys.length) return base;
    } else if (value instanceof Date) {
      base = Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
      if (!keys.length) return base;
    } else if (value instanceof Error) {
      base = errorText(value, state);
      keys = keys.filter((key) => !["stack", "message", "name", "cause"].includes(key));
      const extra = [];
      if (value.cause !== undefined && Object.hasOwn(value, "cause")) extra.push(() => `[cause]: ${show(value.cause, options, state)}`);
      if (Array.isArray(value.errors)) {
        keys = keys.filter((key) => key !== "errors");
        extra.push(() => `[errors]: ${show(value.errors, options, state)}`);
      }
      if (!keys.length && !extra.length) return base;
      if (extra.length) entries = () => extra.map((make) => make());
    } else if (value instanceof Promise) {
      braces[0] = `${prefix(value, "Promise")}{`;
      entries = () => {
        const [kind, result] = native.promise(value);
        return [kind === "pending" ? "<pending>" : (kind === "rejected" ? "<rejected> " : "") + show(result, options, state)];
      };
    } else if (value instanceof WeakMap || value instanceof WeakSet || (typeof WeakRef === "function" && value instanceof WeakRef)) {
      braces[0] = `${prefix(value, "Weak")}{`;
      entries = () => ["<items unknown>"];
    } else if (value instanceof Number || value instanceof String || value instanceof Boolean || value instanceof BigInt || value instanceof Symbol) {
      const name = value.constructor?.name ?? "Object";
      base = `[${name}: ${primitive(value.valueOf(), options)}]`;
      keys = keys.filter((key) => typeof key === "symbol" || !/^\d+$/.test(key));
      if (!keys.length) return base;
    } else {
      const name = className(value);
      const tag = tagOf(value);
      if (name !== "Object" || tag) braces[0] = `${prefix(value, "Object")}{`;
      if (tag === "Module") braces[0] = "[Module: null prototype] {";
    }
    if (options.depth !== null && state.level > options.depth) {
      return Array.isArray(value) ? "[Array]" : `[${className(value) ?? "Object: null prototype"}]`;
    }
    const shown = deeper(state, () => {
      const list = entries ? entries() : [];
      const most = options.maxArrayLength ?? Infinity;
      for (const key of keys.slice(0, Math.max(most, 1000))) list.push(property(value, key, options, state));
      if (keys.length > Math.max(most, 1000)) list.push(`... ${keys.length - Math.max(most, 1000)} more properties`);
      return list;
    });
    return join(shown, base, braces, options, state, Array.isArray(value) || ArrayBuffer.isView(value));
  };

  const deeper = (state, work) => { state.level += 1; try { return work(); } finally { state.level -= 1; } };

  const items = (array, options, state) => {
    const out = [];
    const most = Math.min(options.maxArrayLength ?? Infinity, array.length);
    let at = 0;
    while (at < array.length && out.length < most) {
      if (!Object.hasOwn(array, at)) {
        let end = at;
        while (end < array.length && !Object.hasOwn(array, end)) end += 1;
        out.push(`<${end - at} empty item${end - at > 1 ? "s" : ""}>`);
        at = end;
      } else out.push(show(array[at++], options, state));
    }
    if (at < array.length) out.push(`... ${array.length - at} more item${array.length - at > 1 ? "s" : ""}`);
    return out;
  };
  const many = (values, options, each) => {
    const most = options.maxArrayLength ?? Infinity;
    const out = Array.from(values.length > most ? values.slice(0, most) : values, each);
    const more = values.length - out.length;
    if (more > 0) out.push(`... ${more} more item${more > 1 ? "s" : ""}`);
    return out;
  };

  const property = (object, key, options, state) => {
    const own = Object.getOwnPropertyDescriptor(object, key) ?? { value: safely(() => object[key]) };
    const name = typeof key === "symbol" ? `[${key.toString()}]` : NAME.test(key) ? key : quote(key);
    let text;
    if (own.get) text = own.set ? "[Getter/Setter]" : "[Getter]";
    else if (own.set) text = "[Setter]";
    else text = show(own.value, options, state);
    return `${own.enumerable === false ? `[${String(key)}]` : name}: ${text}`;
  };

  const join = (shown, base, braces, options, state, isList) => {
    const head = base ? `${base} ` : "";
    if (!shown.length) return `${head}${braces[0]}${braces[1]}`;
    const indent = "  ".repeat(state.level);
    const width = shown.reduce((sum, text) => sum + text.length + 2, head.length + braces[0].length + indent.length);
    const flat = shown.every((text) => !text.includes("\n"));
    if (flat && width + 2 <= options.breakLength && !base.includes("\n")) return `${head}${braces[0]} ${shown.join(", ")} ${braces[1]}`;
    if (isList && flat && shown.length > 6 && shown.every((text) => text.length <= 16)) {
      return `${head}${braces[0]}\n${wrap(shown, indent + "  ", options.breakLength)}\n${indent}${braces[1]}`;
    }
    const line = `\n${indent}  `;
    return `${head}${braces[0]}${line}${shown.join("," + line)}\n${indent}${braces[1]}`;
  };
  // Puts as many short items on a line as fit.
  const wrap = (shown, indent, most) => {
    const lines = [];
    let line = "";
    shown.forEach((text, at) => {
      const piece = at < shown.length - 1 ? `${text}, ` : text;
      if (line && indent.length + line.length + piece.length > most) { lines.push(indent + line.trimEnd()); line = ""; }
      line += piece;
    });
    lines.push(indent + line);
    return lines.join("\n");
  };

  const inspect = (value, options, ...old) => {
    const wanted = typeof options === "object" && options !== null ? options
      : { showHidden: options === true, ...(old[0] === undefined ? {} : { depth: old[0] }) };
    const all = { ...DEFAULTS, ...wanted };
    if (all.depth === Infinity || all.depth === undefined) all.depth = all.depth === undefined ? DEFAULTS.depth : null;
    return show(value, all, { level: 0, count: 0, above: [], circular: new Map() });
  };
  inspect.custom = CUSTOM;
  inspect.defaultOptions = DEFAULTS;

  const plain = (value) => (typeof value === "string" ? value : inspect(value));
  const short = (value) => {
    if (typeof value === "string") return value;
    if (typeof value === "bigint") return `${value}n`;
    if (typeof value === "number") return number(value);
    if (value === null || typeof value !== "object") return typeof value === "function" ? String(value) : String(value);
    if (value instanceof Error || (typeof value.toString === "function" && value.toString !== Object.prototype.toString && value.toString !== Array.prototype.toString)) return String(value);
    return inspect(value, { depth: 0 });
  };
  const directives = {
    s: short,
    d: (value) => (typeof value === "bigint" ? `${value}n` : typeof value === "symbol" ? "NaN" : number(Number(value))),
    i: (value) => (typeof value === "bigint" ? `${value}n` : typeof value === "symbol" ? "NaN" : number(parseInt(value))),
    f: (value) => (typeof value === "symbol" ? "NaN" : number(parseFloat(value))),
    j: (value) => { try { return JSON.stringify(value); } catch { return "[Circular]"; } },
    o: (value) => inspect(value, { showHidden: true, depth: 4 }),
    O: (value) => inspect(value),
    c: () => "",
  };
  const format = (...args) => {
    if (typeof args[0] !== "string") return args.map(plain).join(" ");
    let used = 1;
    const text = args.length === 1 ? args[0] : args[0].replace(/%([sdifjoOc%])/g, (whole, kind) => {
      if (kind === "%") return "%";
      return used < args.length ? String(directives[kind](args[used++])) : whole;
    });
    return [text, ...args.slice(used).map(plain)].join(" ");
  };

  return { inspect, format };
}
