() => {
  "use strict";
  const escape = (text) => encodeURIComponent(text);
  const unescape = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
  const stringify = (value, sep = "&", eq = "=") => Object.entries(value ?? {}).flatMap(([key, item]) => (Array.isArray(item) ? item : [item]).map((one) => `${escape(key)}${eq}${escape(["string", "number", "bigint", "boolean"].includes(typeof one) ? String(one) : "")}`)).join(sep);
  const parse = (text, sep = "&", eq = "=") => {
    const out = Object.create(null);
    for (const pair of String(text).split(sep).filter(Boolean)) {
      const at = pair.indexOf(eq);
      const [key, value] = (at < 0 ? [pair, ""] : [pair.slice(0, at), pair.slice(at + eq.length)]).map((part) => unescape(part.replaceAll("+", " ")));
      out[key] = key in out ? [].concat(out[key], value) : value;
    }
    return out;
  };
  return { stringify, encode: stringify, parse, decode: parse, escape, unescape };
}
