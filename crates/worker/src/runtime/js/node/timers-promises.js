(load) => {
  "use strict";
  const { setTimeout: start, clearTimeout: stop } = load("internal:timers").globals;
  const wait = (delay, value, { signal } = {}) => new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const timer = start(() => resolve(value), delay);
    signal?.addEventListener("abort", () => { stop(timer); reject(signal.reason); }, { once: true });
  });
  return {
    setTimeout: wait,
    setImmediate: (value, options) => wait(0, value, options),
    setInterval: async function* (delay, value, options) { for (;;) { await wait(delay, undefined, options); yield value; } },
    scheduler: { wait: (delay, options) => wait(delay, undefined, options), yield: () => wait(0) },
  };
}
