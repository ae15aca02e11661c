// Bodies of requests and responses: text, bytes, a stream, or data that is still to be received.
(function (native, part, global) {
  // Closes an exchange when its response is garbage-collected.
  const forgotten = new FinalizationRegistry((id) => native.close(id));
  const bytesOf = (value) =>
    value instanceof ArrayBuffer || Object.prototype.toString.call(value) === "[object SharedArrayBuffer]"
      ? new Uint8Array(value)
      : new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  const isBuffer = (value) => ArrayBuffer.isView(value) || value instanceof ArrayBuffer;

  const concat = (chunks) => {
    if (chunks.length === 1) return chunks[0];
    const whole = new Uint8Array(chunks.reduce((sum, it) => sum + it.byteLength, 0));
    let at = 0;
    for (const chunk of chunks) { whole.set(chunk, at); at += chunk.byteLength; }
    return whole;
  };

  class Content {
    text = null;
    bytes = null;
    id = null;
    stream = null;
    used = false;
    failure = null;

    static exchange(id) {
      const made = new Content();
      made.id = id;
      // Without a token for `unregister`: the engine would keep it, and so the response, for ever.
      forgotten.register(made, id);
      return made;
    }
    get isUsed() { return this.used || (this.stream !== null && this.stream[part("streams").core].disturbed); }
    get isLocked() { return this.stream?.locked ?? false; }

    broken(why) { return this.failure ?? new TypeError(why); }
    abort(reason) {
      this.failure = reason;
      if (this.id !== null) native.close(this.id);
      this.controller?.error(reason);
    }
    toStream() {
      if (this.stream === null) {
        const content = this;
        const { ReadableStream } = part("streams");
        this.stream = this.id === null
          ? new ReadableStream({
            type: "bytes",
            start(controller) {
              const bytes = content.bytes ?? native.utf8Encode(content.text);
              if (bytes.byteLength > 0) controller.enqueue(bytes.slice());
              controller.close();
            },
          })
          : new ReadableStream({
            type: "bytes",
            start(controller) { content.controller = controller; },
            async pull(controller) {
              const piece = await native.read(content.id);
              if (content.failure) throw content.failure;
              if (piece === null) controller.close();
              else if (piece.error !== undefined) throw content.broken(piece.error);
              else controller.enqueue(piece);
            },
            cancel() { native.close(content.id); },
          }, { highWaterMark: 0 });
      }
      return this.stream;
    }
    claim() {
      if (this.isUsed) throw new TypeError("Body already consumed.");
      if (this.isLocked) throw new TypeError("Body is locked.");
      this.used = true;
    }
    async all(asText) {
      this.claim();
      if (this.stream === null && this.id !== null) {
        if (this.failure) throw this.failure;
        const whole = await native.readAll(this.id, asText);
        if (this.failure) throw this.failure;
        if (whole !== null && whole.error !== undefined) throw this.broken(whole.error);
        return whole ?? (asText ? "" : new Uint8Array(0));
      }
      if (this.stream === null) {
        if (asText) return this.text?.replace(/^\ufeff/, "") ?? native.utf8Decode(this.bytes, false, false);
        return this.bytes?.slice() ?? native.utf8Encode(this.text);
      }
      const chunks = [];
      for await (const chunk of this.stream) {
        if (!isBuffer(chunk)) throw new TypeError("the stream of a body must produce bytes");
        chunks.push(bytesOf(chunk));
      }
      const whole = chunks.length === 0 ? new Uint8Array(0) : concat(chunks);
      return asText ? native.utf8Decode(whole, false, false) : whole;
    }
    clone() {
      if (this.isUsed || this.isLocked) throw new TypeError("Body is unusable.");
      const made = new Content();
      if (this.stream === null && this.id === null) Object.assign(made, { text: this.text, bytes: this.bytes });
      else [this.stream, made.stream] = this.toStream().tee();
      return made;
    }
  }

  // Returns the content and the content type of a body argument.
  const extract = (init) => {
    const content = new Content();
    let type = null;
    const { Blob } = part("blob");
    if (typeof init === "object" && init !== null) {
      if (isBuffer(init)) content.bytes = bytesOf(init).slice();
      else if (init instanceof part("streams").ReadableStream) {
        if (init.locked || init[part("streams").core].disturbed) throw new TypeError("the stream of the body is already used");
        content.stream = init;
      } else if (init instanceof Blob) {
        content.bytes = part("blob").bytes(init);
        type = init.type || null;
      } else if (init instanceof part("form").FormData) {
        const form = part("form").multipart(init);
        content.bytes = form.bytes;
        type = form.type;
      } else if (init instanceof part("url").URLSearchParams) {
        content.text = `${init}`;
        type = "application/x-www-form-urlencoded;charset=UTF-8";
      } else if (typeof init[Symbol.asyncIterator] === "function") {
        content.stream = part("streams").ReadableStream.from((async function* () {
          for await (const it of init) yield typeof it === "string" ? native.utf8Encode(it.toWellFormed()) : it;
        })());
      }
    }
    if (content.bytes === null && content.stream === null && content.text === null) {
      content.text = `${init}`.toWellFormed();
      type = "text/plain;charset=UTF-8";
    }
    return { content, type };
  };

  const own = Symbol("content");
  // Members that `Request` and `Response` share.
  class Body {
    [own] = null;
    get body() { return this[own]?.toStream() ?? null; }
    get bodyUsed() { return this[own]?.isUsed ?? false; }
    async text() { return this[own] === null ? "" : await this[own].all(true); }
    async bytes() { return this[own] === null ? new Uint8Array(0) : await this[own].all(false); }
    async arrayBuffer() { return (await this.bytes()).buffer; }
    async json() { return JSON.parse(await this.text()); }
    async blob() { return new (part("blob").Blob)([await this.bytes()], { type: this.headers.get("content-type") ?? "" }); }
    async formData() { return part("form").parse(await this.bytes(), this.headers.get("content-type") ?? ""); }
  }
  return { Body, Content, extract, own, bytesOf, isBuffer, concat };
})
