// `WritableStream` and `TransformStream`.
(function (native, part) {
  const { ReadableStream, core, deferred, quiet, mark } = part("streams");

  class Writable {
    state = "writable";
    error = undefined;
    queue = [];
    total = 0;
    started = false;
    busy = false;
    closing = null;
    writer = null;
    ended = deferred();
    signal = new AbortController();

    constructor(sink, strategy) {
      this.sink = sink;
      this.mark = mark(strategy, 1);
      this.size = strategy?.size ?? (() => 1);
      quiet(this.ended.promise);
      this.ready = deferred();
      quiet(this.ready.promise);
      if (this.wanted > 0) this.ready.resolve();
    }
    start(controller) {
      this.controller = controller;
      Promise.resolve(this.sink.start?.(controller)).then(() => { this.started = true; this.advance(); }, (error) => this.fail(error));
    }
    get wanted() { return this.state === "errored" ? null : this.state === "closed" ? 0 : this.mark - this.total; }
    pressed() {
      if (this.state !== "writable") return;
      if (this.wanted > 0) this.ready.resolve();
      else if (!this.waiting) {
        this.ready = deferred();
        quiet(this.ready.promise);
      }
      this.waiting = this.wanted <= 0;
    }
    write(chunk) {
      if (this.state === "errored") return Promise.reject(this.error);
      if (this.state === "closed" || this.closing) return Promise.reject(new TypeError("the stream is closed"));
      let size;
      try { size = Number((0, this.size)(chunk)); } catch (error) { this.fail(error); return Promise.reject(error); }
      const done = deferred();
      this.queue.push({ chunk, size, done });
      this.total += size;
      this.pressed();
      this.advance();
      return done.promise;
    }
    close() {
      if (this.state === "errored") return Promise.reject(this.error);
      if (this.state === "closed" || this.closing) return Promise.reject(new TypeError("the stream is already closed"));
      this.closing = deferred();
      this.ready.resolve();
      this.advance();
      return this.closing.promise;
    }
    advance() {
      if (!this.started || this.busy || this.state !== "writable") return;
      const next = this.queue[0];
      if (!next && !this.closing) return;
      this.busy = true;
      const acted = new Promise((resolve) => resolve(next ? this.sink.write?.(next.chunk, this.controller) : this.sink.close?.()));
      acted.then(() => {
        this.busy = false;
        if (!next) {
          this.state = "closed";
          this.closing.resolve();
          this.ended.resolve();
          return;
        }
        this.queue.shift();
        this.total -= next.size;
        next.done.resolve();
        this.pressed();
        this.advance();
      }, (error) => { this.busy = false; this.fail(error); });
    }
    fail(error) {
      if (this.state !== "writable") return;
      this.state = "errored";
      this.error = error;
      for (const { done } of this.queue.splice(0)) { quiet(done.promise); done.reject(error); }
      this.closing?.reject(error);
      this.ready.reject(error);
      this.ready = deferred();
      quiet(this.ready.promise);
      this.ready.reject(error);
      this.ended.reject(error);
    }
    async abort(reason) {
      if (this.state !== "writable") return;
      this.signal.abort(reason);
      this.fail(reason);
      await this.sink.abort?.(reason);
    }
  }

  class WritableStreamDefaultController {
    constructor(key, inner) {
      if (key !== core) throw new TypeError("Illegal constructor");
      this[core] = inner;
    }
    get signal() { return this[core].signal.signal; }
    error(error) { this[core].fail(error); }
  }

  class WritableStream {
    constructor(sink = {}, strategy = {}) {
      const inner = new Writable(sink ?? {}, strategy);
      Object.defineProperty(this, core, { value: inner });
      inner.start(new WritableStreamDefaultController(core, inner));
    }
    get locked() { return this[core].writer !== null; }
    getWriter() { return new WritableStreamDefaultWriter(this); }
    async abort(reason) {
      if (this.locked) throw new TypeError("the stream is locked");
      await this[core].abort(reason);
    }
    async close() {
      if (this.locked) throw new TypeError("the stream is locked");
      await this[core].close();
    }
    get [Symbol.toStringTag]() { return "WritableStream"; }
  }

  class WritableStreamDefaultWriter {
    #stream;
    constructor(stream) {
      if (stream.locked) throw new TypeError("the stream is locked");
      this.#stream = stream;
      stream[core].writer = this;
    }
    #inner() {
      if (!this.#stream) throw new TypeError("the writer was released");
      return this.#stream[core];
    }
    get closed() { return this.#stream ? this.#inner().ended.promise : Promise.reject(new TypeError("the writer was released")); }
    get ready() { return this.#stream ? this.#inner().ready.promise : Promise.reject(new TypeError("the writer was released")); }
    get desiredSize() { return this.#inner().wanted; }
    async write(chunk) { return await this.#inner().write(chunk); }
    async close() { return await this.#inner().close(); }
    async abort(reason) { return await this.#inner().abort(reason); }
    releaseLock() {
      if (!this.#stream) return;
      this.#stream[core].writer = null;
      this.#stream = undefined;
    }
    get [Symbol.toStringTag]() { return "WritableStreamDefaultWriter"; }
  }

  class TransformStream {
    #readable;
    #writable;
    constructor(transformer = {}, writableStrategy = {}, readableStrategy = {}) {
      const change = transformer ?? {};
      let output;
      let waiting = null;
      const controller = {
        get desiredSize() { return output.desiredSize; },
        enqueue(chunk) { output.enqueue(chunk); },
        error(error) { output.error(error); sink[core].fail(error); },
        terminate() {
          if (!readable[core].closing) output.close();
          sink[core].fail(new TypeError("the transform stream was terminated"));
        },
      };
      const readable = new ReadableStream({
        start(made) { output = made; },
        pull() { waiting?.(); },
        async cancel(reason) {
          sink[core].fail(reason);
          waiting?.();
          await change.cancel?.(reason);
        },
      }, { highWaterMark: 0, ...readableStrategy });
      const wanted = async () => {
        while (!readable[core].wants && readable[core].state === "readable") await new Promise((resolve) => { waiting = resolve; });
        waiting = null;
      };
      const guarded = async (act) => {
        try { await act(); } catch (error) { output.error(error); throw error; }
      };
      const sink = new WritableStream({
        start: () => change.start?.(controller),
        write: (chunk) => guarded(async () => {
          await wanted();
          if (change.transform) await change.transform(chunk, controller);
          else controller.enqueue(chunk);
        }),
        close: () => guarded(async () => {
          await change.flush?.(controller);
          if (readable[core].state === "readable" && !readable[core].closing) output.close();
        }),
        abort: async (reason) => {
          output.error(reason);
          await change.cancel?.(reason);
        },
      }, { highWaterMark: 1, ...writableStrategy });
      this.#readable = readable;
      this.#writable = sink;
    }
    get readable() { return this.#readable; }
    get writable() { return this.#writable; }
    get [Symbol.toStringTag]() { return "TransformStream"; }
  }

  class TextDecoderStream extends TransformStream {
    #decoder;
    constructor(label = "utf-8", options = {}) {
      const decoder = new TextDecoder(label, options);
      super({
        transform(chunk, controller) {
          const text = decoder.decode(chunk, { stream: true });
          if (text) controller.enqueue(text);
        },
        flush(controller) {
          const text = decoder.decode();
          if (text) controller.enqueue(text);
        },
      });
      this.#decoder = decoder;
    }
    get encoding() { return this.#decoder.encoding; }
    get fatal() { return this.#decoder.fatal; }
    get ignoreBOM() { return this.#decoder.ignoreBOM; }
  }
  class TextEncoderStream extends TransformStream {
    constructor() {
      let high = "";
      const encoder = new TextEncoder();
      super({
        transform(chunk, controller) {
          let text = high + `${chunk}`;
          high = /[\ud800-\udbff]$/.test(text) ? text.at(-1) : "";
          if (high) text = text.slice(0, -1);
          if (text) controller.enqueue(encoder.encode(text));
        },
        flush(controller) { if (high) controller.enqueue(encoder.encode(high)); },
      });
    }
    get encoding() { return "utf-8"; }
  }

  return { WritableStream, WritableStreamDefaultWriter, TransformStream, TextDecoderStream, TextEncoderStream };
})
