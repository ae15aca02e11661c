// `performance`, `navigator`, and classes that are not available.
(function (native, part, global) {
  const origin = Date.now();
  const { clock } = native;
  const now = clock?.now?.bind(clock) ?? (() => Date.now() - origin);
  const start = now();

  class PerformanceEntry {
    constructor(entryType, name, startTime, duration, detail) { Object.assign(this, { name, entryType, startTime, duration, detail }); }
    toJSON() { return { ...this }; }
  }
  class Performance {
    #entries = [];
    get timeOrigin() { return origin; }
    now() { return now() - start; }
    mark(name, { startTime = this.now(), detail = null } = {}) {
      const made = new PerformanceEntry("mark", `${name}`, startTime, 0, detail);
      this.#entries.push(made);
      return made;
    }
    #at(mark, missing) {
      if (mark === undefined) return missing;
      if (typeof mark === "number") return mark;
      const found = this.#entries.findLast((it) => it.entryType === "mark" && it.name === `${mark}`);
      if (!found) throw new (part("events").DOMException)(`Cannot find mark: "${mark}"`, "SyntaxError");
      return found.startTime;
    }
    measure(name, from, to) {
      const given = typeof from === "object" && from !== null ? from : { start: from, end: to };
      const start = this.#at(given.start, 0);
      const end = given.end === undefined && given.duration !== undefined ? start + given.duration : this.#at(given.end, this.now());
      const made = new PerformanceEntry("measure", `${name}`, start, end - start, given.detail ?? null);
      this.#entries.push(made);
      return made;
    }
    getEntries() { return [...this.#entries]; }
    getEntriesByName(name, type) { return this.#entries.filter((it) => it.name === name && (type === undefined || it.entryType === type)); }
    getEntriesByType(type) { return this.#entries.filter((it) => it.entryType === type); }
    clearMarks(name) { this.#entries = this.#entries.filter((it) => it.entryType !== "mark" || (name !== undefined && it.name !== name)); }
    clearMeasures(name) { this.#entries = this.#entries.filter((it) => it.entryType !== "measure" || (name !== undefined && it.name !== name)); }
    toJSON() { return { timeOrigin: origin }; }
    get [Symbol.toStringTag]() { return "Performance"; }
  }

  const navigator = { userAgent: native.userAgent, language: "en-US", languages: ["en-US"], hardwareConcurrency: 1, platform: "Linux x86_64", onLine: true };

  const missing = (name, instead) => ({ [name]: class {
    constructor() { throw new TypeError(`${name} is not available here: ${instead}`); }
  } }[name]);
  const WebSocket = missing("WebSocket", "use `fetch`; an answer's body can be read as a stream");
  const EventSource = missing("EventSource", "use `fetch` and read the events from `response.body`, for example with `for await` over `response.body.pipeThrough(new TextDecoderStream())`");
  const XMLHttpRequest = missing("XMLHttpRequest", "use `fetch`");
  const Worker = missing("Worker", "a program has one thread; use promises, or run_command for other programs");
  const CompressionStream = missing("CompressionStream", "use run_command with gzip");
  const DecompressionStream = missing("DecompressionStream", "answers of `fetch` are decompressed already; for files use run_command with gzip");
  return { performance: new Performance(), Performance, navigator, WebSocket, EventSource, XMLHttpRequest, Worker, CompressionStream, DecompressionStream };
})
