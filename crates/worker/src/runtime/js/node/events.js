() => {
  "use strict";
  class EventEmitter {
    #of = new Map();
    static defaultMaxListeners = 10;
    #list(name) { let list = this.#of.get(name); if (!list) this.#of.set(name, (list = [])); return list; }
    on(name, listener) { return this.#add(name, listener, false, false); }
    addListener(name, listener) { return this.on(name, listener); }
    prependListener(name, listener) { return this.#add(name, listener, false, true); }
    once(name, listener) { return this.#add(name, listener, true, false); }
    prependOnceListener(name, listener) { return this.#add(name, listener, true, true); }
    #add(name, listener, once, first) {
      if (typeof listener !== "function") throw new TypeError(`The "listener" argument must be of type function`);
      if (this.#of.has("newListener")) this.emit("newListener", name, listener);
      this.#list(name)[first ? "unshift" : "push"]({ listener, once });
      return this;
    }
    off(name, listener) {
      const list = this.#of.get(name) ?? [];
      const at = list.findLastIndex((entry) => entry.listener === listener);
      if (at >= 0) this.#of.set(name, list.toSpliced(at, 1));
      return this;
    }
    removeListener(name, listener) { return this.off(name, listener); }
    removeAllListeners(name) { if (name === undefined) this.#of.clear(); else this.#of.delete(name); return this; }
    emit(name, ...args) {
      const list = this.#of.get(name) ?? [];
      if (!list.length) {
        if (name === "error") throw args[0] instanceof Error ? args[0] : new Error(`Unhandled error. (${args[0]})`);
        return false;
      }
      for (const entry of [...list]) {
        if (entry.once) this.#of.set(name, this.#list(name).filter((other) => other !== entry));
        entry.listener.apply(this, args);
      }
      return true;
    }
    listenerCount(name) { return (this.#of.get(name) ?? []).length; }
    listeners(name) { return (this.#of.get(name) ?? []).map((entry) => entry.listener); }
    rawListeners(name) { return this.listeners(name); }
    eventNames() { return [...this.#of.keys()].filter((name) => this.#of.get(name).length); }
    setMaxListeners() { return this; }
    getMaxListeners() { return EventEmitter.defaultMaxListeners; }
    static once(emitter, name, { signal } = {}) {
      return new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason);
        const failed = (error) => { emitter.off?.(name, done); reject(error); };
        const done = (...args) => { emitter.off?.("error", failed); resolve(args); };
        if (typeof emitter.on !== "function") return emitter.addEventListener(name, (event) => resolve([event]), { once: true });
        emitter.once(name, done);
        if (name !== "error") emitter.once("error", failed);
        signal?.addEventListener("abort", () => { emitter.off(name, done); reject(signal.reason); }, { once: true });
      });
    }
    static on(emitter, name, { signal } = {}) {
      const waiting = [], ready = [];
      let failed, ended = false;
      const listen = (...args) => (waiting.length ? waiting.shift().resolve({ value: args, done: false }) : ready.push(args));
      const fail = (error) => (waiting.length ? waiting.shift().reject(error) : (failed = error));
      emitter.on(name, listen);
      if (name !== "error") emitter.on("error", fail);
      const end = () => { ended = true; emitter.off(name, listen); emitter.off("error", fail); for (const one of waiting.splice(0)) one.resolve({ value: undefined, done: true }); };
      signal?.addEventListener("abort", () => { fail(signal.reason); }, { once: true });
      return {
        next() {
          if (ready.length) return Promise.resolve({ value: ready.shift(), done: false });
          if (failed) { const error = failed; failed = undefined; end(); return Promise.reject(error); }
          if (ended) return Promise.resolve({ value: undefined, done: true });
          return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
        },
        return() { end(); return Promise.resolve({ value: undefined, done: true }); },
        throw(error) { fail(error); end(); return Promise.reject(error); },
        [Symbol.asyncIterator]() { return this; },
      };
    }
    static listenerCount(emitter, name) { return emitter.listenerCount(name); }
  }
  EventEmitter.EventEmitter = EventEmitter;
  return EventEmitter;
}
