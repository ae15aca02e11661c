// `Blob` and `File`.
(function (native, part) {
  const { bytesOf, isBuffer, concat } = part("body");
  const type = (given) => {
    const text = `${given ?? ""}`;
    return /[^ -~]/.test(text) ? "" : text.toLowerCase();
  };

  class Blob {
    #bytes;
    #type;
    constructor(parts = [], options = {}) {
      if (parts === null || typeof parts !== "object" || typeof parts[Symbol.iterator] !== "function") throw new TypeError("Blob: the parts must be iterable");
      const given = options ?? {};
      const lines = given.endings === "native" ? (text) => text.replace(/\r\n?/g, "\n") : (text) => text;
      const pieces = [];
      for (const it of parts) {
        if (isBuffer(it)) pieces.push(bytesOf(it).slice());
        else if (it instanceof Blob) pieces.push(it.#bytes);
        else pieces.push(native.utf8Encode(lines(`${it}`.toWellFormed())));
      }
      this.#bytes = pieces.length === 0 ? new Uint8Array(0) : concat(pieces);
      this.#type = type(given.type);
    }
    get size() { return this.#bytes.byteLength; }
    get type() { return this.#type; }
    slice(start = 0, end = this.size, contentType = "") {
      const made = new Blob();
      made.#bytes = this.#bytes.slice(start, end);
      made.#type = type(contentType);
      return made;
    }
    async text() { return native.utf8Decode(this.#bytes, false, true); }
    async bytes() { return this.#bytes.slice(); }
    async arrayBuffer() { return this.#bytes.slice().buffer; }
    stream() {
      const bytes = this.#bytes;
      return new (part("streams").ReadableStream)({
        type: "bytes",
        start(controller) {
          for (let at = 0; at < bytes.byteLength; at += 65536) controller.enqueue(bytes.slice(at, at + 65536));
          controller.close();
        },
      });
    }
    static bytes(blob) { return blob.#bytes; }
    static share(blob, into) { into.#bytes = blob.#bytes; into.#type = blob.#type; return into; }
    get [Symbol.toStringTag]() { return "Blob"; }
  }

  class File extends Blob {
    #name;
    #modified;
    constructor(parts, name, options = {}) {
      if (arguments.length < 2) throw new TypeError("File: two arguments are required, parts and a name");
      super(parts, options);
      this.#name = `${name}`;
      this.#modified = options?.lastModified === undefined ? Date.now() : Number(options.lastModified);
    }
    get name() { return this.#name; }
    get lastModified() { return this.#modified; }
    get webkitRelativePath() { return ""; }
    get [Symbol.toStringTag]() { return "File"; }
  }
  const { bytes, share } = Blob;
  delete Blob.bytes;
  delete Blob.share;
  return { Blob, File, bytes, share };
})
