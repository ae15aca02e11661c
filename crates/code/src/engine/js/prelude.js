// What every program finds, before anything of it is read.
(native) => {
  "use strict";
  const timers = new Map();
  let last = 0;
  const start = (repeat) => (callback, delay, ...args) => {
    const id = ++last;
    timers.set(id, { callback, args, delay: +delay || 0, repeat });
    native.startTimer(id, +delay || 0);
    return id;
  };
  const stop = (id) => { timers.delete(+id); native.stopTimer(+id); };
  globalThis.setTimeout = start(false);
  globalThis.setInterval = start(true);
  globalThis.clearTimeout = globalThis.clearInterval = stop;
  globalThis.console = {
    log: (...args) => native.write(false, args.join(" ") + "\n"),
    error: (...args) => native.write(true, args.join(" ") + "\n"),
  };
  return {
    fire(id) {
      const timer = timers.get(id);
      if (!timer) return;
      if (timer.repeat) native.startTimer(id, timer.delay); else timers.delete(id);
      timer.callback(...timer.args);
    },
    async outcome(evaluated, namespace, meta) {
      await evaluated;
      let value = "default" in namespace ? await namespace.default : await meta.result;
      if ("default" in namespace && typeof value === "function") value = await value(globalThis.input);
      return JSON.stringify(value);
    },
  };
}
