// `Headers` of requests and responses.
(function () {
  const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
  const names = (name) => {
    const text = `${name}`;
    if (!TOKEN.test(text)) throw new TypeError(`Invalid header name: ${JSON.stringify(text)}`);
    return text.toLowerCase();
  };
  const values = (value, name) => {
    const text = `${value}`.replace(/^[\t\r\n ]+|[\t\r\n ]+$/g, "");
    if (/[\0\r\n]/.test(text)) throw new TypeError(`Invalid header value of ${name}: ${JSON.stringify(text)}`);
    if (/[^\0-\xff]/.test(text)) throw new TypeError(`Invalid header value of ${name}: characters above U+00FF in ${JSON.stringify(text)}`);
    return text;
  };
  const immutable = Symbol("immutable");

  class Headers {
    // Pairs of name and value, in the order of insertion.
    #list = [];
    #frozen = false;

    constructor(init = undefined) {
      if (init === null) throw new TypeError("Headers: the argument must be an object, not null");
      if (init === undefined) return;
      if (typeof init !== "object") throw new TypeError("Headers: the argument must be an object or a list of pairs");
      if (init instanceof Headers) this.#list = init.#list.map((it) => [...it]);
      else if (typeof init[Symbol.iterator] === "function") {
        for (const pair of init) {
          const [name, value, ...more] = pair;
          if (value === undefined || more.length > 0) throw new TypeError("Headers: each header must be a pair of name and value");
          this.append(name, value);
        }
      } else {
        for (const name of Reflect.ownKeys(init)) {
          if (typeof name === "symbol") throw new TypeError("Headers: a name must not be a symbol");
          if (Object.getOwnPropertyDescriptor(init, name)?.enumerable) this.append(name, init[name]);
        }
      }
    }
    #open() { if (this.#frozen) throw new TypeError("Headers are immutable"); }
    append(name, value) {
      if (arguments.length < 2) throw new TypeError("Headers.append: name and value are required");
      const known = names(name);
      const text = values(value, known);
      this.#open();
      this.#list.push([known, text]);
    }
    delete(name) {
      const known = names(name);
      this.#open();
      this.#list = this.#list.filter((it) => it[0] !== known);
    }
    get(name) {
      const known = names(name);
      const found = this.#list.filter((it) => it[0] === known);
      return found.length === 0 ? null : found.map((it) => it[1]).join(", ");
    }
    getSetCookie() { return this.#list.filter((it) => it[0] === "set-cookie").map((it) => it[1]); }
    has(name) {
      const known = names(name);
      return this.#list.some((it) => it[0] === known);
    }
    set(name, value) {
      if (arguments.length < 2) throw new TypeError("Headers.set: name and value are required");
      const known = names(name);
      const text = values(value, known);
      this.#open();
      const at = this.#list.findIndex((it) => it[0] === known);
      if (at < 0) this.#list.push([known, text]);
      else this.#list = this.#list.filter((it, here) => here <= at || it[0] !== known).map((it, here) => (here === at ? [known, text] : it));
    }
    forEach(callback, self) { for (const [name, value] of this) callback.call(self, value, name, this); }
    *entries() {
      for (const name of [...new Set(this.#list.map((it) => it[0]))].sort()) {
        if (name === "set-cookie") for (const cookie of this.getSetCookie()) yield [name, cookie];
        else yield [name, this.get(name)];
      }
    }
    *keys() { for (const [name] of this.entries()) yield name; }
    *values() { for (const [, value] of this.entries()) yield value; }
    [Symbol.iterator]() { return this.entries(); }
    get [Symbol.toStringTag]() { return "Headers"; }
    [Symbol.for("nodejs.util.inspect.custom")](depth, options, inspect) {
      const shown = Object.fromEntries(this.entries());
      return inspect ? `Headers ${inspect(shown, options)}` : shown;
    }

    // Creates immutable headers from the headers of a response.
    static [immutable](flat) {
      const made = new Headers();
      for (let at = 0; at + 1 < flat.length; at += 2) made.#list.push([flat[at], flat[at + 1]]);
      made.#frozen = true;
      return made;
    }
    static freeze(headers) { headers.#frozen = true; return headers; }
  }
  const { freeze } = Headers;
  delete Headers.freeze;
  return { Headers, freeze, received: (list) => Headers[immutable](list) };
})
