// Very short modules that share this file.
(load, native) => ({
  perf_hooks: () => ({ get performance() { return globalThis.performance; } }),
  module: () => ({ createRequire: () => globalThis.require, builtinModules: native.builtins() }),
  console: () => globalThis.console,
  "stream/web": () => ({ get ReadableStream() { return globalThis.ReadableStream; }, get WritableStream() { return globalThis.WritableStream; }, get TransformStream() { return globalThis.TransformStream; } }),
  "util/types": () => load("node:util").types,
  string_decoder: () => ({ StringDecoder: class { #it; constructor(encoding = "utf8") { this.#it = new TextDecoder(encoding); } write(data) { return this.#it.decode(data, { stream: true }); } end(data) { return this.#it.decode(data ?? new Uint8Array()); } } }),
})
