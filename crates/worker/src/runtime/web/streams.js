// `ReadableStream` and its readers.
(function (native, part) {
  const core = Symbol("core");
  const deferred = () => {
    const made = {};
    made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
    return made;
  };
  const quiet = (promise) => (promise.catch(() => {}), promise);

  class CountQueuingStrategy {
    #mark;
    constructor({ highWaterMark }) { this.#mark = Number(highWaterMark); }
    get highWaterMark() { return this.#mark; }
    get size() { return () => 1; }
  }
  class ByteLengthQueuingStrategy {
    #mark;
    constructor({ highWaterMark }) { this.#mark = Number(highWaterMark); }
    get highWaterMark() { return this.#mark; }
    get size() { return (chunk) => chunk.byteLength; }
  }
  const mark = (strategy, missing) => {
    const given = strategy?.highWaterMark === undefined ? missing : Number(strategy.highWaterMark);
    if (Number.isNaN(given) || given < 0) throw new RangeError("highWaterMark must be a non-negative number");
    return given;
  };

  // State that a stream, its controller and its reader share.
  class Readable {
    state = "readable";
    error = undefined;
    disturbed = false;
    reader = null;
    queue = [];
    total = 0;
    requests = [];
    started = false;
    pulling = false;
    again = false;
    closing = false;

    constructor(source, strategy, missing) {
      this.source = source;
      this.bytes = source.type === "bytes";
      this.mark = mark(strategy, missing);
      this.size = strategy?.size ?? (() => 1);
    }
    start(controller) {
      this.controller = controller;
      const started = this.source.start?.(controller);
      Promise.resolve(started).then(() => { this.started = true; this.pull(); }, (error) => this.fail(error));
    }
    get wanted() { return this.state === "readable" && !this.closing ? this.mark - this.total : this.state === "errored" ? null : 0; }
    get wants() { return this.state === "readable" && !this.closing && (this.requests.length > 0 || this.wanted > 0); }
    pull() {
      if (!this.started || !this.wants) return;
      if (this.pulling) { this.again = true; return; }
      this.pulling = true;
      let pulled;
      try { pulled = this.source.pull?.(this.controller); } catch (error) { this.fail(error); return; }
      Promise.resolve(pulled).then(() => {
        this.pulling = false;
        if (this.again) { this.again = false; this.pull(); }
      }, (error) => this.fail(error));
    }
    enqueue(chunk) {
      if (this.state !== "readable" || this.closing) throw new TypeError("cannot enqueue: the stream is closed");
      if (this.bytes && !ArrayBuffer.isView(chunk)) throw new TypeError("a byte stream accepts only ArrayBuffer views");
      if (this.bytes && chunk.byteLength === 0) throw new TypeError("a chunk of a byte stream must not be empty");
      if (this.requests.length > 0) this.requests.shift().resolve({ value: chunk, done: false });
      else {
        let size;
        try {
          size = this.bytes ? chunk.byteLength : Number((0, this.size)(chunk));
          if (Number.isNaN(size) || size < 0 || size === Infinity) throw new RangeError("the size of a chunk must be a finite number");
        } catch (error) { this.fail(error); throw error; }
        this.queue.push({ chunk, size });
        this.total += size;
      }
      this.pull();
    }
    close() {
      if (this.state !== "readable" || this.closing) throw new TypeError("the stream is already closed");
      this.closing = true;
      if (this.queue.length === 0) this.end();
    }
    end() {
      if (this.state !== "readable") return;
      this.state = "closed";
      for (const request of this.requests.splice(0)) request.resolve({ value: undefined, done: true });
      this.reader?.ended.resolve();
    }
    fail(error) {
      if (this.state !== "readable") return;
      this.state = "errored";
      this.error = error;
      this.queue = [];
      for (const request of this.requests.splice(0)) request.reject(error);
      this.reader?.ended.reject(error);
    }
    read() {
      this.disturbed = true;
      if (this.state === "errored") return Promise.reject(this.error);
      if (this.queue.length > 0) {
        const { chunk, size } = this.queue.shift();
        this.total -= size;
        if (this.closing && this.queue.length === 0) this.end();
        else this.pull();
        return Promise.resolve({ value: chunk, done: false });
      }
      if (this.state === "closed") return Promise.resolve({ value: undefined, done: true });
      const request = deferred();
      this.requests.push(request);
      this.pull();
      return request.promise;
    }
    unread(chunk) {
      this.queue.unshift({ chunk, size: chunk.byteLength });
      this.total += chunk.byteLength;
      if (this.state === "closed") Object.assign(this, { state: "readable", closing: true });
    }
    async cancel(reason) {
      this.disturbed = true;
      if (this.state === "closed") return;
      if (this.state === "errored") throw this.error;
      this.queue = [];
      this.end();
      await this.source.cancel?.(reason);
    }
  }

  class ReadableStreamDefaultController {
    constructor(key, inner) {
      if (key !== core) throw new TypeError("Illegal constructor");
      this[core] = inner;
    }
    get desiredSize() { return this[core].wanted; }
    get byobRequest() { return null; }
    enqueue(chunk) { this[core].enqueue(chunk); }
    close() { this[core].close(); }
    error(error) { this[core].fail(error); }
  }

  class Reader {
    #stream;
    constructor(stream) {
      if (!(stream instanceof ReadableStream)) throw new TypeError("not a ReadableStream");
      if (stream.locked) throw new TypeError("ReadableStream is locked");
      this.#stream = stream;
      const inner = stream[core];
      const ended = deferred();
      quiet(ended.promise);
      if (inner.state === "closed") ended.resolve();
      if (inner.state === "errored") ended.reject(inner.error);
      inner.reader = this[core] = { ended };
    }
    get closed() { return this[core].ended.promise; }
    _inner() {
      if (!this.#stream) throw new TypeError("the reader was released");
      return this.#stream[core];
    }
    async cancel(reason) { return await this._inner().cancel(reason); }
    releaseLock() {
      const inner = this.#stream?.[core];
      if (!inner) return;
      const error = new TypeError("the reader was released");
      for (const request of inner.requests.splice(0)) request.reject(error);
      this[core].ended.reject(error);
      if (inner.state !== "readable") { this[core].ended = deferred(); quiet(this[core].ended.promise); this[core].ended.reject(error); }
      inner.reader = null;
      this.#stream = undefined;
    }
  }
  class ReadableStreamDefaultReader extends Reader {
    async read() { return await this._inner().read(); }
    get [Symbol.toStringTag]() { return "ReadableStreamDefaultReader"; }
  }
  class ReadableStreamBYOBReader extends Reader {
    constructor(stream) {
      if (!stream?.[core]?.bytes) throw new TypeError("only a byte stream can be read into a buffer");
      super(stream);
    }
    async read(view) {
      const inner = this._inner();
      const { value, done } = await inner.read();
      const Kind = view.constructor;
      const into = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
      if (done) return { value: new Kind(view.buffer, view.byteOffset, 0), done: true };
      const from = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
      const length = Math.min(into.length, from.length);
      into.set(from.subarray(0, length));
      if (length < from.length) inner.unread(from.subarray(length));
      return { value: new Kind(view.buffer, view.byteOffset, length / (Kind.BYTES_PER_ELEMENT ?? 1)), done: false };
    }
    get [Symbol.toStringTag]() { return "ReadableStreamBYOBReader"; }
  }

  class ReadableStream {
    constructor(source = {}, strategy = {}) {
      if (source === null || typeof source !== "object") throw new TypeError("the source of a stream must be an object");
      if (source.type !== undefined && source.type !== "bytes") throw new TypeError(`unknown source type: ${source.type}`);
      const inner = new Readable(source, strategy, source.type === "bytes" ? 0 : 1);
      this[core] = inner;
      Object.defineProperty(this, core, { enumerable: false });
      inner.start(new ReadableStreamDefaultController(core, inner));
    }
    get locked() { return this[core].reader !== null; }
    getReader(options) {
      const mode = options?.mode;
      if (mode === "byob") return new ReadableStreamBYOBReader(this);
      if (mode !== undefined) throw new TypeError(`unknown reader mode: ${mode}`);
      return new ReadableStreamDefaultReader(this);
    }
    async cancel(reason) {
      if (this.locked) throw new TypeError("the stream is locked");
      return await this[core].cancel(reason);
    }
    tee() {
      const reader = this.getReader();
      const ends = [false, false];
      const reasons = [];
      const cancelled = deferred();
      const controllers = [];
      let reading = false;
      let wantedAgain = false;
      const pull = () => {
        if (reading) { wantedAgain = true; return; }
        reading = true;
        reader.read().then(({ value, done }) => {
          reading = false;
          for (const at of [0, 1]) {
            if (ends[at]) continue;
            if (done) controllers[at].close();
            else controllers[at].enqueue(at === 1 && ArrayBuffer.isView(value) ? value.slice() : value);
          }
          if (done) cancelled.resolve();
          if (wantedAgain && !done) { wantedAgain = false; pull(); }
        }, (error) => { for (const it of controllers) it.error(error); cancelled.resolve(); });
      };
      return [0, 1].map((at) => new ReadableStream({
        start(controller) { controllers[at] = controller; },
        pull,
        cancel(reason) {
          ends[at] = true;
          reasons[at] = reason;
          if (ends[0] && ends[1]) reader.cancel(reasons).then(cancelled.resolve, cancelled.reject);
          return cancelled.promise;
        },
      }, { highWaterMark: 0 }));
    }
    pipeThrough(pair, options) {
      quiet(this.pipeTo(pair.writable, options));
      return pair.readable;
    }
    async pipeTo(destination, { preventClose, preventAbort, preventCancel, signal } = {}) {
      if (this.locked) throw new TypeError("the stream is locked");
      if (destination.locked) throw new TypeError("the destination is locked");
      const reader = this.getReader();
      const writer = destination.getWriter();
      const aborted = deferred();
      quiet(aborted.promise);
      const stop = () => aborted.reject(signal.reason);
      if (signal?.aborted) stop();
      signal?.addEventListener("abort", stop);
      try {
        for (;;) {
          try {
            await Promise.race([writer.ready, aborted.promise]);
          } catch (error) {
            if (signal?.aborted && !preventAbort) await writer.abort(signal.reason).catch(() => {});
            if (!preventCancel) await reader.cancel(error).catch(() => {});
            throw error;
          }
          let next;
          try {
            next = await Promise.race([reader.read(), aborted.promise, writer.closed.then(() => { throw new TypeError("the destination is closed"); })]);
          } catch (error) {
            if (!preventAbort) await writer.abort(error).catch(() => {});
            if (!preventCancel) await reader.cancel(error).catch(() => {});
            throw error;
          }
          if (next.done) break;
          quiet(writer.write(next.value));
        }
        if (preventClose) await writer.ready;
        else await writer.close();
      } finally {
        signal?.removeEventListener("abort", stop);
        reader.releaseLock();
        writer.releaseLock();
      }
    }
    values({ preventCancel = false } = {}) {
      const reader = this.getReader();
      let over = false;
      const iterator = {
        async next() {
          if (over) return { value: undefined, done: true };
          try {
            const result = await reader.read();
            if (result.done) { over = true; reader.releaseLock(); }
            return result;
          } catch (error) { over = true; reader.releaseLock(); throw error; }
        },
        async return(value) {
          if (!over) {
            over = true;
            const cancelled = preventCancel ? undefined : reader.cancel(value);
            reader.releaseLock();
            await cancelled;
          }
          return { value, done: true };
        },
        [Symbol.asyncIterator]() { return this; },
      };
      return iterator;
    }
    [Symbol.asyncIterator](options) { return this.values(options); }
    static from(iterable) {
      const made = iterable?.[Symbol.asyncIterator]?.() ?? iterable?.[Symbol.iterator]?.();
      if (!made) throw new TypeError("the argument is not iterable");
      return new ReadableStream({
        async pull(controller) {
          const { value, done } = await made.next();
          if (done) controller.close();
          else controller.enqueue(await value);
        },
        async cancel(reason) { await made.return?.(reason); },
      }, { highWaterMark: 0 });
    }
    get [Symbol.toStringTag]() { return "ReadableStream"; }
  }

  return {
    ReadableStream, ReadableStreamDefaultReader, ReadableStreamBYOBReader, CountQueuingStrategy, ByteLengthQueuingStrategy,
    core, deferred, quiet, mark,
  };
})
