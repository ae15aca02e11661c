// Timer functions. The native side tracks due times, and this file keeps the callbacks.
(load, native) => {
  "use strict";
  const running = new Map();
  let last = 0;

  // The timer object of Node, which also converts to a number.
  class Timeout {
    #id;
    constructor(id) { this.#id = id; }
    static is(value) { return typeof value === "object" && value !== null && #id in value; }
    ref() { native.refTimer(this.#id, true); return this; }
    unref() { native.refTimer(this.#id, false); return this; }
    hasRef() { return native.hasRefTimer(this.#id); }
    refresh() {
      const timer = running.get(this.#id);
      if (timer) native.startTimer(this.#id, timer.delay);
      return this;
    }
    close() { stop(this); return this; }
    [Symbol.toPrimitive]() { return this.#id; }
    [Symbol.dispose ?? Symbol.for("dispose")]() { stop(this); }
  }

  const start = (repeat, name) => {
    const begin = (callback, delay = 0, ...args) => {
      if (typeof callback !== "function") throw new TypeError(`${name}: the callback must be a function, not ${typeof callback}`);
      const id = ++last;
      const wait = Math.min(Math.max(Number(delay) || 0, repeat ? 1 : 0), 2 ** 31 - 1);
      running.set(id, { callback, args, delay: wait, repeat });
      native.startTimer(id, wait);
      return new Timeout(id);
    };
    Object.defineProperty(begin, "name", { value: name });
    return begin;
  };
  const stop = (timer) => {
    if (timer === undefined || timer === null) return;
    const id = Number(timer);
    if (running.delete(id)) native.stopTimer(id);
  };
  const setTimeout = start(false, "setTimeout");
  const later = (callback, ...args) => setTimeout(callback, 0, ...args);

  return {
    isTimer: Timeout.is,
    globals: {
      setTimeout,
      setInterval: start(true, "setInterval"),
      setImmediate: function setImmediate(callback, ...args) { return later(callback, ...args); },
      clearTimeout: function clearTimeout(timer) { stop(timer); },
      clearInterval: function clearInterval(timer) { stop(timer); },
      clearImmediate: function clearImmediate(timer) { stop(timer); },
    },
    fire(id) {
      const timer = running.get(id);
      if (!timer) return;
      if (timer.repeat) native.startTimer(id, timer.delay);
      else running.delete(id);
      timer.callback.apply(undefined, timer.args);
    },
  };
}
