(load, native) => {
  "use strict";
  const check = (value, name = "path") => {
    if (typeof value !== "string") throw Object.assign(new TypeError(`The "${name}" argument must be of type string. Received ${value === null ? "null" : typeof value}`), { code: "ERR_INVALID_ARG_TYPE" });
    return value;
  };
  const parts = (text, absolute) => {
    const out = [];
    for (const part of text.split("/")) {
      if (part === "" || part === ".") continue;
      if (part === ".." && out.length && out.at(-1) !== "..") out.pop();
      else if (part !== ".." || !absolute) out.push(part);
    }
    return out.join("/");
  };
  const isAbsolute = (text) => check(text).startsWith("/");
  const normalize = (text) => {
    if (check(text) === "") return ".";
    const absolute = isAbsolute(text);
    let out = parts(text, absolute);
    if (out === "" && !absolute) out = ".";
    if (text.endsWith("/") && out !== "" ) out += "/";
    return absolute ? `/${out}` : out;
  };
  const join = (...texts) => {
    const joined = texts.map((text) => check(text)).filter((text) => text !== "").join("/");
    return joined === "" ? "." : normalize(joined);
  };
  const resolve = (...texts) => {
    let out = "";
    for (const text of [...texts].reverse()) {
      if (check(text) === "") continue;
      out = out === "" ? text : `${text}/${out}`;
      if (isAbsolute(text)) break;
    }
    if (!out.startsWith("/")) out = `${native.cwd()}/${out}`;
    return `/${parts(out, true)}`;
  };
  const basename = (text, end) => {
    const name = check(text).replace(/\/+$/, "").split("/").at(-1);
    return end && name !== end && name.endsWith(end) ? name.slice(0, -end.length) : name;
  };
  const dirname = (text) => {
    const trimmed = check(text).replace(/(?<=.)\/+$/, "");
    const at = trimmed.lastIndexOf("/");
    if (at < 0) return ".";
    return at === 0 ? "/" : trimmed.slice(0, at).replace(/(?<=.)\/+$/, "");
  };
  const extname = (text) => {
    const name = basename(text);
    const at = name.lastIndexOf(".");
    return at <= 0 || name === ".." ? "" : name.slice(at);
  };
  const relative = (from, to) => {
    const [a, b] = [resolve(from), resolve(to)].map((text) => text.split("/").filter(Boolean));
    let same = 0;
    while (same < a.length && same < b.length && a[same] === b[same]) same += 1;
    return [...a.slice(same).map(() => ".."), ...b.slice(same)].join("/");
  };
  const parse = (text) => {
    const root = isAbsolute(text) ? "/" : "";
    const base = basename(text);
    const ext = extname(text);
    const dir = dirname(text);
    return { root, dir: dir === "." && !text.startsWith(".") ? "" : dir, base, ext, name: ext ? base.slice(0, -ext.length) : base };
  };
  const format = ({ dir, root = "", base, name = "", ext = "" }) => {
    const file = base ?? `${name}${ext && !ext.startsWith(".") ? "." : ""}${ext}`;
    if (!dir) return `${root}${file}`;
    return dir === root ? `${dir}${file}` : `${dir}/${file}`;
  };
  const path = { sep: "/", delimiter: ":", normalize, join, resolve, basename, dirname, extname, relative, parse, format, isAbsolute, toNamespacedPath: (text) => text, matchesGlob: (text, pattern) => native.globMatch(String(pattern).toWellFormed(), String(text).toWellFormed()) };
  path.posix = path;
  return path;
}
