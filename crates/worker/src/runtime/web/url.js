// `URL` and `URLSearchParams`.
(function (native) {
  const PARTS = ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"];
  const text = (value) => `${value}`.toWellFormed();
  const changed = Symbol("changed");

  class URLSearchParams {
    #list = [];
    #owner = null;
    constructor(init = "") {
      if (typeof init === "object" && init !== null || typeof init === "function") {
        const iterate = init[Symbol.iterator];
        if (iterate !== undefined && iterate !== null) {
          for (const pair of init) {
            const both = [...pair];
            if (both.length !== 2) throw new TypeError("URLSearchParams: each item must be a pair of name and value");
            this.#list.push(both.map(text));
          }
        } else {
          for (const name of Reflect.ownKeys(init)) {
            if (typeof name === "symbol" || !Object.getOwnPropertyDescriptor(init, name).enumerable) continue;
            this.#list.push([text(name), text(init[name])]);
          }
        }
      } else this.#read(text(init).replace(/^\?/, ""));
    }
    #read(query) {
      const flat = native.formParse(query);
      this.#list = [];
      for (let at = 0; at < flat.length; at += 2) this.#list.push([flat[at], flat[at + 1]]);
    }
    #tell() { this.#owner?.[changed](`${this}`); }
    static of(url, query) {
      const made = new URLSearchParams();
      made.#owner = url;
      made.#read(query);
      return made;
    }
    static reread(params, query) { params.#read(query); }
    get size() { return this.#list.length; }
    append(name, value) {
      if (arguments.length < 2) throw new TypeError("URLSearchParams.append: name and value are required");
      this.#list.push([text(name), text(value)]);
      this.#tell();
    }
    delete(name, value) {
      const [known, only] = [text(name), value === undefined ? undefined : text(value)];
      this.#list = this.#list.filter((it) => it[0] !== known || (only !== undefined && it[1] !== only));
      this.#tell();
    }
    get(name) { return this.#list.find((it) => it[0] === text(name))?.[1] ?? null; }
    getAll(name) { return this.#list.filter((it) => it[0] === text(name)).map((it) => it[1]); }
    has(name, value) { return this.#list.some((it) => it[0] === text(name) && (value === undefined || it[1] === text(value))); }
    set(name, value) {
      if (arguments.length < 2) throw new TypeError("URLSearchParams.set: name and value are required");
      const made = [text(name), text(value)];
      const at = this.#list.findIndex((it) => it[0] === made[0]);
      if (at < 0) this.#list.push(made);
      else this.#list = this.#list.filter((it, here) => here <= at || it[0] !== made[0]).with(at, made);
      this.#tell();
    }
    sort() {
      this.#list.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
      this.#tell();
    }
    forEach(callback, self) { for (const [name, value] of this.#list) callback.call(self, value, name, this); }
    *entries() { for (let at = 0; at < this.#list.length; at++) yield [...this.#list[at]]; }
    *keys() { for (const it of this.entries()) yield it[0]; }
    *values() { for (const it of this.entries()) yield it[1]; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return native.formSerialize(this.#list.flat()); }
    get [Symbol.toStringTag]() { return "URLSearchParams"; }
    [Symbol.for("nodejs.util.inspect.custom")](depth, options, inspect) {
      return inspect ? `URLSearchParams ${inspect(Object.fromEntries(this.#list), options)}` : `${this}`;
    }
  }
  const { of, reread } = URLSearchParams;
  delete URLSearchParams.of;
  delete URLSearchParams.reread;

  class URL {
    #parts;
    #params = null;
    constructor(input, base = undefined) {
      if (arguments.length === 0) throw new TypeError("URL: one argument is required");
      const parts = native.urlParse(text(input), base === undefined ? undefined : text(base));
      if (parts === undefined || parts === null) throw new TypeError(`Invalid URL: '${input}'${base === undefined ? "" : ` with base '${base}'`}`);
      this.#parts = parts;
    }
    static canParse(input, base = undefined) { return !!native.urlParse(text(input), base === undefined ? undefined : text(base)); }
    static parse(input, base = undefined) { return URL.canParse(input, base) ? new URL(input, base) : null; }
    static createObjectURL() { throw new TypeError("URL.createObjectURL is not available here: use the Blob itself"); }
    static revokeObjectURL() {}
    static get(url, at) { return url.#parts[at]; }
    static set(url, name, value) {
      const parts = native.urlSet(url.#parts[0], name, text(value));
      if (parts) url.#parts = parts;
      if (name === "search" && url.#params) reread(url.#params, url.#parts[9].slice(1));
    }
    get href() { return this.#parts[0]; }
    set href(value) {
      const parts = native.urlParse(text(value), undefined);
      if (!parts) throw new TypeError(`Invalid URL: '${value}'`);
      this.#parts = parts;
      if (this.#params) reread(this.#params, parts[9].slice(1));
    }
    get origin() { return this.#parts[1]; }
    get searchParams() { return (this.#params ??= of(this, this.#parts[9].slice(1))); }
    [changed](query) { this.#parts = native.urlSet(this.#parts[0], "search", query) ?? this.#parts; }
    toString() { return this.#parts[0]; }
    toJSON() { return this.#parts[0]; }
    get [Symbol.toStringTag]() { return "URL"; }
    [Symbol.for("nodejs.util.inspect.custom")](depth, options, inspect) {
      const shown = Object.fromEntries(PARTS.map((name) => [name, this[name]]));
      return inspect ? `URL ${inspect(shown, options)}` : this.href;
    }
  }
  const { get, set } = URL;
  delete URL.get;
  delete URL.set;
  for (const [at, name] of PARTS.entries()) {
    if (at < 2) continue;
    Object.defineProperty(URL.prototype, name, {
      configurable: true,
      enumerable: true,
      get() { return get(this, at); },
      set(value) { set(this, name, value); },
    });
  }
  return { URL, URLSearchParams };
})
