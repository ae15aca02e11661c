(load, native) => {
  "use strict";
  const { inspect, format } = load("internal:inspect");
  const tag = (name) => (value) => Object.prototype.toString.call(value) === `[object ${name}]`;
  const types = {
    isPromise: (value) => value instanceof Promise, isDate: (value) => value instanceof Date, isRegExp: (value) => value instanceof RegExp,
    isMap: (value) => value instanceof Map, isSet: (value) => value instanceof Set, isNativeError: (value) => value instanceof Error,
    isTypedArray: (value) => ArrayBuffer.isView(value) && !(value instanceof DataView), isUint8Array: (value) => value instanceof Uint8Array,
    isArrayBuffer: (value) => value instanceof ArrayBuffer, isAnyArrayBuffer: (value) => value instanceof ArrayBuffer, isDataView: (value) => value instanceof DataView,
    isWeakMap: (value) => value instanceof WeakMap, isWeakSet: (value) => value instanceof WeakSet,
    isAsyncFunction: tag("AsyncFunction"), isGeneratorFunction: tag("GeneratorFunction"), isGeneratorObject: tag("Generator"),
    isBoxedPrimitive: (value) => value instanceof Number || value instanceof String || value instanceof Boolean,
    isProxy: () => false, isSymbolObject: (value) => value instanceof Symbol, isNumberObject: (value) => value instanceof Number, isStringObject: (value) => value instanceof String,
  };
  const custom = Symbol.for("nodejs.util.promisify.custom");
  const promisify = (work) => {
    if (typeof work !== "function") throw new TypeError("promisify takes a function");
    if (work[custom]) return work[custom];
    if (work === globalThis.setTimeout) return (delay, value) => new Promise((resolve) => setTimeout(resolve, delay, value));
    return function (...args) {
      return new Promise((resolve, reject) => work.call(this, ...args, (error, value) => (error ? reject(error) : resolve(value))));
    };
  };
  promisify.custom = custom;
  const { isDeepStrictEqual } = load("internal:equal");
  return {
    inspect, format, types, promisify, isDeepStrictEqual,
    formatWithOptions: (options, ...args) => format(...args),
    callbackify: (work) => (...args) => { const callback = args.pop(); work(...args).then((value) => callback(null, value), (error) => callback(error)); },
    deprecate: (work) => work,
    debuglog: () => Object.assign(() => {}, { enabled: false }),
    inherits(child, parent) { Object.defineProperty(child, "super_", { value: parent, writable: true, configurable: true }); Object.setPrototypeOf(child.prototype, parent.prototype); },
    isArray: Array.isArray, isError: types.isNativeError, isDate: types.isDate, isRegExp: types.isRegExp,
    stripVTControlCharacters: (text) => String(text).replace(/\x1b\[[0-9;?]*[ -\/]*[@-~]/g, ""),
    styleText: (style, text) => text,
    toUSVString: (text) => String(text).toWellFormed(),
    parseArgs: ({ args = [], options = {} } = {}) => {
      const values = {}, positionals = [];
      for (let at = 0; at < args.length; at++) {
        const [, name, given] = /^--([^=]+)(?:=(.*))?$/s.exec(args[at]) ?? [];
        if (!name) positionals.push(args[at]);
        else values[name] = options[name]?.type === "string" ? given ?? args[++at] : true;
      }
      return { values, positionals };
    },
    get TextEncoder() { return globalThis.TextEncoder; },
    get TextDecoder() { return globalThis.TextDecoder; },
  };
}
