// The synchronous functions of `fs`, without streams. The box is the security boundary, not this code.
(load, native) => {
  "use strict";
  const path = (value) => {
    if (value instanceof URL) {
      if (value.protocol !== "file:") throw new TypeError(`not a file URL: ${value}`);
      return decodeURIComponent(value.pathname);
    }
    if (ArrayBuffer.isView(value)) return new TextDecoder().decode(value);
    if (typeof value !== "string") throw new TypeError(`a path must be a string, not ${value === null ? "null" : typeof value}`);
    return value.toWellFormed();
  };
  const bytes = (data) => {
    if (typeof data === "string") return data.toWellFormed();
    if (data instanceof Uint8Array) return data;
    if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (data instanceof ArrayBuffer) return new Uint8Array(data);
    if (data !== null && typeof data === "object" && typeof data[Symbol.iterator] === "function") return [...data].map(String).join("");
    throw new TypeError("the data of a file must be a string or bytes");
  };
  const encodingOf = (options) => (typeof options === "string" ? options : options?.encoding ?? null);
  const decode = (data, encoding) => (encoding === "buffer" ? data : load("node:buffer").Buffer.from(data).toString(encoding));

  class Stats {
    constructor(it) {
      Object.assign(this, it);
      delete this.kind;
      Object.defineProperty(this, "kind", { value: it.kind, enumerable: false });
      for (const name of ["atime", "mtime", "ctime", "birthtime"]) this[name] = new Date(it[`${name}Ms`]);
    }
    isFile() { return this.kind === "file"; }
    isDirectory() { return this.kind === "directory"; }
    isSymbolicLink() { return this.kind === "symlink"; }
    isFIFO() { return this.kind === "fifo"; }
    isSocket() { return this.kind === "socket"; }
    isBlockDevice() { return this.kind === "block"; }
    isCharacterDevice() { return this.kind === "character"; }
  }
  class Dirent {
    constructor(name, parentPath, kind) { this.name = name; this.parentPath = this.path = parentPath; Object.defineProperty(this, "kind", { value: kind, enumerable: false }); }
  }
  for (const name of ["isFile", "isDirectory", "isSymbolicLink", "isFIFO", "isSocket", "isBlockDevice", "isCharacterDevice"]) {
    Object.defineProperty(Dirent.prototype, name, { value: Stats.prototype[name] });
  }

  const readdir = (directory, options = {}) => {
    const top = path(directory);
    const found = [];
    const into = (at, inner) => {
      for (const [name, kind] of native.readDir(at)) {
        const below = inner ? `${inner}/${name}` : name;
        found.push(options?.withFileTypes ? new Dirent(name, at, kind) : below);
        if (options?.recursive && kind === "directory") into(`${at}/${name}`, below);
      }
    };
    into(top, "");
    return found;
  };
  const stat = (follow) => (file, options = {}) => {
    try { return new Stats(native.stat(path(file), follow)); } catch (error) {
      if (options?.throwIfNoEntry === false && error.code === "ENOENT") return undefined;
      throw error;
    }
  };
  const write = (append) => (file, data, options) => {
    const encoding = encodingOf(options);
    const raw = typeof data === "string" && encoding && !/^utf-?8$/i.test(encoding) ? load("node:buffer").Buffer.from(data, encoding) : bytes(data);
    const flag = typeof options === "object" && options !== null ? options.flag ?? "" : "";
    native.writeFile(path(file), raw, append || flag.startsWith("a"), flag.includes("x"));
  };
  const remove = (file, options = {}) => {
    try { native.remove(path(file), options?.recursive === true, true); } catch (error) {
      if (!(options?.force && error.code === "ENOENT")) throw error;
    }
  };
  const exists = (file) => { try { native.stat(path(file), true); return true; } catch { return false; } };
  const copyTree = (from, to, options = {}) => {
    if (native.stat(path(from), true).kind !== "directory") return native.copy(path(from), path(to));
    if (!options?.recursive) throw new Error(`${from} is a directory: use { recursive: true }`);
    native.mkdir(path(to), true);
    for (const [name] of native.readDir(path(from))) copyTree(`${path(from)}/${name}`, `${path(to)}/${name}`, options);
  };

  const sync = {
    readFile(file, options) {
      const encoding = encodingOf(options);
      if (encoding && /^utf-?8$/i.test(encoding)) return native.readText(path(file));
      const data = native.readFile(path(file));
      return encoding ? decode(data, encoding) : load("node:buffer").Buffer.from(data.buffer);
    },
    writeFile: write(false),
    appendFile: write(true),
    readdir,
    stat: stat(true),
    lstat: stat(false),
    mkdir(file, options) {
      const recursive = options?.recursive === true;
      return native.mkdir(path(file), recursive) ?? undefined;
    },
    rm: remove,
    rmdir: (file, options) => native.removeDir(path(file), options?.recursive === true),
    unlink: (file) => native.unlink(path(file)),
    rename: (from, to) => native.rename(path(from), path(to)),
    copyFile: (from, to) => native.copy(path(from), path(to)),
    cp: copyTree,
    access: (file) => void native.stat(path(file), true),
    realpath: (file) => native.realPath(path(file)),
    readlink: (file) => native.readLink(path(file)),
    symlink: (target, file) => native.symlink(path(target), path(file)),
    chmod: (file, mode) => native.chmod(path(file), typeof mode === "string" ? parseInt(mode, 8) : mode),
    truncate: (file, length = 0) => native.truncate(path(file), length),
    utimes() {},
    mkdtemp: (prefix) => native.makeTemp(path(prefix)),
  };

  // Finds files below a directory with `*`, `**`, `?`, `[…]` and `{a,b}`.
  const glob = (pattern, options = {}) => native.glob(String(pattern).toWellFormed(), path(options.cwd ?? "."));
  const walk = function* (directory = ".", options = {}) {
    const { maxDepth = Infinity, includeDirs = true, includeFiles = true, exts } = options;
    const into = function* (at, depth) {
      for (const [name, kind] of native.readDir(at)) {
        const entry = { path: at === "." ? name : `${at.replace(/\/$/, "")}/${name}`, name, isFile: kind === "file", isDirectory: kind === "directory", isSymlink: kind === "symlink" };
        const wanted = kind === "directory" ? includeDirs : includeFiles && (!exts || exts.some((end) => name.endsWith(end)));
        if (wanted) yield entry;
        if (kind === "directory" && depth < maxDepth) yield* into(entry.path, depth + 1);
      }
    };
    yield* into(path(directory), 1);
  };

  const promises = { constants: { F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1 } };
  for (const [name, work] of Object.entries(sync)) {
    promises[name] = Object.defineProperty(async (...args) => work(...args), "name", { value: name });
  }
  promises.glob = async function* (pattern, options) { yield* glob(pattern, options); };
  promises.exists = async (file) => exists(file);

  const all = { path, bytes, exists, glob, walk, promises, Stats, Dirent };
  for (const [name, work] of Object.entries(sync)) all[`${name}Sync`] = work;
  return all;
}
