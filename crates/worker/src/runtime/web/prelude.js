// Defines the globals of the web platform. A part is evaluated when a program first uses one of its globals.
(function (native, global) {
  native.clock = global.performance;
  const parts = new Map();
  const part = (name) => {
    let made = parts.get(name);
    if (made === undefined) {
      made = native.load(name)(native, part, global);
      parts.set(name, made);
    }
    return made;
  };
  const define = (target, name, value) =>
    Object.defineProperty(target, name, { value, writable: true, configurable: true, enumerable: false });
  const lazy = (target, name, make) =>
    Object.defineProperty(target, name, {
      configurable: true,
      enumerable: false,
      get() {
        const value = make();
        define(target, name, value);
        return value;
      },
      set(value) {
        define(target, name, value);
      },
    });
  const parts_of_globals = {
    events: "Event CustomEvent EventTarget AbortController AbortSignal DOMException ErrorEvent MessageEvent ProgressEvent reportError",
    streams: "ReadableStream ReadableStreamDefaultReader ReadableStreamBYOBReader ByteLengthQueuingStrategy CountQueuingStrategy",
    writable: "WritableStream WritableStreamDefaultWriter TransformStream TextDecoderStream TextEncoderStream",
    headers: "Headers",
    fetch: "fetch Request Response",
    blob: "Blob File",
    form: "FormData",
    url: "URL URLSearchParams",
    text: "TextEncoder TextDecoder atob btoa",
    crypto: "crypto Crypto CryptoKey SubtleCrypto",
    clone: "structuredClone",
    intl: "Intl",
    misc: "performance Performance navigator WebSocket EventSource XMLHttpRequest CompressionStream DecompressionStream Worker",
  };
  for (const from in parts_of_globals) {
    for (const name of parts_of_globals[from].split(" ")) lazy(global, name, () => part(from)[name]);
  }
  for (const name of ["self", "global"]) if (!(name in global)) define(global, name, global);

  // QuickJS has no `Intl`, so locale-dependent methods are replaced.
  const late = (target, name, from) =>
    define(target, name, {
      [name](...given) {
        return part(from)[name].call(this, target, ...given);
      },
    }[name]);
  for (const type of [Number, BigInt]) late(type.prototype, "toLocaleString", "intl");
  for (const name of ["toLocaleString", "toLocaleDateString", "toLocaleTimeString"]) late(Date.prototype, name, "intl");
  late(String.prototype, "localeCompare", "collate");
  return part;
})
