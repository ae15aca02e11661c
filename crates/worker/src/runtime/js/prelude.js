// Defines the globals of every program. Returns the functions that the event loop calls.
(native) => {
  "use strict";
  const global = globalThis;
  const define = (target, name, value) =>
    Object.defineProperty(target, name, { value, writable: true, configurable: true, enumerable: false });

  // Loads built-in modules. The factory of each module is called once.
  const loaded = new Map();
  const load = (name) => {
    if (!loaded.has(name)) {
      const make = native.factory(name);
      loaded.set(name, {});
      loaded.set(name, make(load, native));
    }
    return loaded.get(name);
  };

  // Defines a global that is created on first use.
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

  // QuickJS stacks contain only frames, with positions in the converted code. Programs expect the message
  // first, and positions in their own source. Frames of the error's own constructors are removed, as in Node.
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
  // An error in a microtask becomes an unhandled rejection.
  define(global, "queueMicrotask", (callback) => {
    if (typeof callback !== "function") throw new TypeError("queueMicrotask: the argument must be a function");
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
        // A program that ends with a call of setTimeout() waits for that timer and has no result.
        if (timers.isTimer(value)) value = undefined;
        if (value === undefined && main.exports !== global.exports) value = await main.exports;
      }
      return result(value);
    },
  };
}
