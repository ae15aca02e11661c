// What every program finds, before anything of it is read. Gives the loop what it calls.
(native) => {
  "use strict";
  const global = globalThis;
  const define = (target, name, value) =>
    Object.defineProperty(target, name, { value, writable: true, configurable: true, enumerable: false });

  // Modules that are built in: a function of `load` and of the natives, called once.
  const loaded = new Map();
  const load = (name) => {
    if (!loaded.has(name)) {
      const make = native.factory(name);
      loaded.set(name, {});
      loaded.set(name, make(load, native));
    }
    return loaded.get(name);
  };

  // A global that is made when it is first named.
  const lazy = (name, make) =>
    Object.defineProperty(global, name, {
      configurable: true,
      enumerable: false,
      get() {
        const value = make();
        define(global, name, value);
        return value;
      },
      set(value) {
        define(global, name, value);
      },
    });

  // The engine's own stack has frames only, of its own text. Programs read the message there too, and
  // the lines that they wrote.
  // Without the constructors of the error's own class: it was made where they were called.
  const below = (error, stack) => {
    const makers = [];
    for (let make = error.constructor; typeof make === "function" && make !== Error; make = Object.getPrototypeOf(make)) {
      if (make.name) makers.push(`    at ${make.name} (`);
    }
    const frames = stack.split("\n");
    const at = frames.findIndex((frame) => !makers.some((maker) => frame.startsWith(maker)));
    if (at > 0 && frames[at]) frames.splice(0, at);
    return frames.join("\n");
  };
  const raw = Object.getOwnPropertyDescriptor(Error.prototype, "stack");
  Object.defineProperty(Error.prototype, "stack", {
    ...raw,
    get() {
      const stack = raw.get.call(this);
      if (typeof stack !== "string" || (stack !== "" && !stack.startsWith("    at "))) return stack;
      return `${Error.prototype.toString.call(this)}\n${below(this, native.stack(stack))}`.trimEnd();
    },
  });

  const timers = load("internal:timers");
  for (const [name, value] of Object.entries(timers.globals)) define(global, name, value);
  // A failure in a microtask is one that nobody asks about.
  define(global, "queueMicrotask", (callback) => {
    if (typeof callback !== "function") throw new TypeError("queueMicrotask needs a function");
    Promise.resolve().then(() => void callback());
  });
  define(global, "console", load("internal:console"));
  lazy("process", () => load("node:process"));
  lazy("Buffer", () => load("node:buffer").Buffer);
  lazy("Deno", () => load("internal:deno"));
  const main = { exports: {}, id: ".", filename: "/workspace/main.ts", loaded: false, children: [] };
  const require = (name) => load(native.resolveBuiltin(String(name).toWellFormed()));
  require.main = main;
  require.resolve = (name) => native.resolveBuiltin(String(name).toWellFormed());
  require.cache = Object.create(null);
  define(global, "require", require);
  define(global, "module", main);
  define(global, "exports", main.exports);

  const result = load("internal:result");
  const keysOf = (exports) =>
    typeof exports === "function"
      ? Object.getOwnPropertyNames(exports).filter((key) => !["length", "name", "prototype"].includes(key))
      : Object.keys(exports);
  return {
    load,
    keys: (name) => keysOf(load(name)).filter((key) => key !== "default" && /^[\p{ID_Start}_$][\p{ID_Continue}$]*$/u.test(key)),
    fire: timers.fire,
    tools: (functions) => define(global, "tools", load("internal:tools")(functions, native.call)),
    apis: (clients) => define(global, "apis", load("internal:tools").apis(clients)),
    input: (value) => define(global, "input", value),
    async outcome(evaluated, namespace, meta) {
      await evaluated;
      let value;
      if ("default" in namespace) {
        value = await namespace.default;
        if (typeof value === "function" && !/^class\b/.test(Function.prototype.toString.call(value))) {
          value = await value(global.input);
        }
      } else {
        value = await meta.result;
        if (value === undefined && main.exports !== global.exports) value = await main.exports;
      }
      return result(value);
    },
  };
}
