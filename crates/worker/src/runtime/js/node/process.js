(load, native) => {
  "use strict";
  const started = native.now();
  const listeners = load("node:events");
  const stream = (error) => ({
    isTTY: false, columns: 80, writable: true,
    write(data, encoding, callback) {
      native.write(error, (typeof data === "string" ? data : new TextDecoder().decode(data)).toWellFormed());
      const done = typeof encoding === "function" ? encoding : callback;
      if (typeof done === "function") queueMicrotask(() => done());
      return true;
    },
    end(data) { if (data !== undefined) this.write(data); },
    on() { return this; }, once() { return this; }, emit() { return false; },
  });
  const hrtime = (before) => {
    const now = native.now() - started;
    let [seconds, rest] = [Math.floor(now / 1000), Math.round((now % 1000) * 1e6)];
    if (before) { seconds -= before[0]; rest -= before[1]; if (rest < 0) { seconds -= 1; rest += 1e9; } }
    return [seconds, rest];
  };
  hrtime.bigint = () => BigInt(Math.round((native.now() - started) * 1e6));
  const process = Object.assign(new listeners(), {
    env: native.env(),
    argv: ["/usr/bin/belljar", "/workspace/main.ts"],
    execArgv: [], execPath: "/usr/bin/belljar", title: "belljar",
    pid: 1, ppid: 0, platform: "linux", arch: native.arch, version: "v22.0.0",
    versions: { node: "22.0.0", belljar: native.version }, release: { name: "node" }, exitCode: undefined,
    stdout: stream(false), stderr: stream(true),
    stdin: { isTTY: false, on() { return this; }, once() { return this; }, resume() { return this; }, setEncoding() { return this; }, async *[Symbol.asyncIterator]() {} },
    cwd: () => native.cwd(),
    chdir: (path) => native.chdir(String(path).toWellFormed()),
    exit(code) { native.exit(Number(code ?? process.exitCode ?? 0) || 0); },
    abort() { native.exit(134); },
    nextTick: (callback, ...args) => queueMicrotask(() => callback(...args)),
    hrtime,
    uptime: () => (native.now() - started) / 1000,
    memoryUsage: Object.assign(() => { const used = native.memory(); return { rss: used, heapTotal: used, heapUsed: used, external: 0, arrayBuffers: 0 }; }, { rss: () => native.memory() }),
    cpuUsage: () => ({ user: Math.round((native.now() - started) * 1000), system: 0 }),
    umask: () => 0o22,
    getuid: () => 1000, geteuid: () => 1000, getgid: () => 1000, getegid: () => 1000,
    emitWarning: (warning) => console.warn(`Warning: ${warning?.message ?? warning}`),
    kill() { throw new Error("process.kill is not available here"); },
    features: {}, config: {}, report: {},
    binding() { throw new Error("process.binding is not available here"); },
  });
  // Listeners are stored but never called: the event loop reports unhandled errors itself.
  process.on = process.addListener = (name, listener) => listeners.prototype.on.call(process, name, listener);
  return process;
}
