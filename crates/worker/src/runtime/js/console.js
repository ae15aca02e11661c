// `console`, formatted as in Node. Writes to standard output and standard error.
(load, native) => {
  "use strict";
  const { inspect, format } = load("internal:inspect");
  const counts = new Map();
  const clocks = new Map();
  let indent = "";

  const write = (error, args) => {
    let text = args.length === 1 && typeof args[0] === "string" ? args[0] : format(...args);
    if (indent) text = indent + text.replaceAll("\n", "\n" + indent);
    native.write(error, (text + "\n").toWellFormed());
  };
  const out = (...args) => write(false, args);
  const err = (...args) => write(true, args);
  const since = (label) => {
    const elapsed = native.now() - clocks.get(label);
    return elapsed >= 1000 ? `${(elapsed / 1000).toFixed(3)}s` : `${elapsed.toFixed(3)}ms`;
  };

  const table = (data, columns) => {
    if (data === null || typeof data !== "object") return out(data);
    const rows = data instanceof Map ? [...data].map(([key, value], at) => [at, { Key: key, Values: value }])
      : data instanceof Set ? [...data].map((value, at) => [at, value])
      : Object.entries(data);
    const keys = [];
    let plain = false;
    for (const [, row] of rows) {
      if (row !== null && typeof row === "object") {
        for (const key of Object.keys(row)) if (!keys.includes(key)) keys.push(key);
      } else plain = true;
    }
    const shown = columns ?? keys;
    const head = ["(index)", ...shown, ...(plain ? ["Values"] : [])];
    const cell = (value) => inspect(value, { depth: 0, breakLength: Infinity });
    const body = rows.map(([index, row]) => {
      const whole = row === null || typeof row !== "object";
      const cells = shown.map((key) => (!whole && Object.hasOwn(row, key) ? cell(row[key]) : ""));
      return [String(index), ...cells, ...(plain ? [whole ? cell(row) : ""] : [])];
    });
    const wide = head.map((title, at) => Math.max(title.length, ...body.map((row) => row[at].length)) + 2);
    const rule = (left, cross, right) => left + wide.map((width) => "─".repeat(width)).join(cross) + right;
    const line = (cells) => "│" + cells.map((text, at) => ` ${text}`.padEnd(wide[at])).join("│") + "│";
    out([rule("┌", "┬", "┐"), line(head), rule("├", "┼", "┤"), ...body.map(line), rule("└", "┴", "┘")].join("\n"));
  };

  return {
    log: out, info: out, debug: out, warn: err, error: err,
    trace(...args) {
      const frames = new Error().stack.split("\n").slice(1);
      err([`Trace${args.length ? ": " + format(...args) : ""}`, ...frames].join("\n"));
    },
    dir: (value, options) => out(inspect(value, options)),
    dirxml: out,
    table,
    group(...args) { if (args.length) out(...args); indent += "  "; },
    groupCollapsed(...args) { if (args.length) out(...args); indent += "  "; },
    groupEnd() { indent = indent.slice(2); },
    time(label = "default") { clocks.set(String(label), native.now()); },
    timeLog(label = "default", ...args) { if (clocks.has(String(label))) out(`${label}: ${since(String(label))}`, ...args); },
    timeEnd(label = "default") {
      if (!clocks.has(String(label))) return err(`No such label '${label}' for console.timeEnd()`);
      out(`${label}: ${since(String(label))}`);
      clocks.delete(String(label));
    },
    timeStamp() {},
    count(label = "default") {
      const count = (counts.get(String(label)) ?? 0) + 1;
      counts.set(String(label), count);
      out(`${label}: ${count}`);
    },
    countReset(label = "default") { counts.delete(String(label)); },
    assert(condition, ...args) {
      if (condition) return;
      if (typeof args[0] === "string") args[0] = `Assertion failed: ${args[0]}`;
      else args.unshift("Assertion failed");
      err(...args);
    },
    clear() {},
    profile() {}, profileEnd() {},
  };
}
