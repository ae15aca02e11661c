// `TextEncoder`, `TextDecoder`, `atob` and `btoa`.
(function (native, part) {
  const { bytesOf, isBuffer, concat } = part("body");
  const LABELS = {
    "utf-8": "utf-8 utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
    "utf-16le": "utf-16le utf-16 ucs-2 unicode csunicode iso-10646-ucs-2 unicodefeff",
    "utf-16be": "utf-16be unicodefffe",
    "windows-1252": "windows-1252 latin1 iso-8859-1 iso8859-1 iso88591 iso_8859-1 ascii us-ascii cp1252 x-cp1252 l1 cp819 ibm819 ansi_x3.4-1968",
  };
  const encodings = new Map(Object.entries(LABELS).flatMap(([name, labels]) => labels.split(" ").map((label) => [label, name])));

  class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(text = "") { return native.utf8Encode(`${text}`.toWellFormed()); }
    encodeInto(text, into) {
      let read = 0;
      let written = 0;
      for (const character of `${text}`.toWellFormed()) {
        const bytes = native.utf8Encode(character);
        if (written + bytes.length > into.length) break;
        into.set(bytes, written);
        written += bytes.length;
        read += character.length;
      }
      return { read, written };
    }
    get [Symbol.toStringTag]() { return "TextEncoder"; }
  }

  class TextDecoder {
    #encoding;
    #fatal;
    #ignoreBOM;
    // Incomplete bytes at the end of the last chunk, and whether the start was decoded.
    #rest = null;
    #begun = false;
    constructor(label = "utf-8", options = {}) {
      const known = encodings.get(`${label}`.trim().toLowerCase());
      if (known === undefined) throw new RangeError(`The encoding label provided ('${label}') is invalid or not available here: use utf-8, utf-16le, utf-16be or windows-1252`);
      this.#encoding = known;
      this.#fatal = !!options?.fatal;
      this.#ignoreBOM = !!options?.ignoreBOM;
    }
    get encoding() { return this.#encoding; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#ignoreBOM; }
    decode(input = new Uint8Array(0), options = {}) {
      if (!isBuffer(input)) throw new TypeError("TextDecoder.decode: the argument must be an ArrayBuffer or a view of one");
      let bytes = bytesOf(input);
      if (this.#rest !== null) bytes = concat([this.#rest, bytes]);
      this.#rest = null;
      const more = !!options?.stream;
      if (more) {
        const whole = this.#whole(bytes);
        if (whole < bytes.length) this.#rest = bytes.slice(whole);
        bytes = bytes.subarray(0, whole);
      }
      const keep = this.#ignoreBOM || this.#begun;
      const decoded = this.#decode(bytes, keep);
      this.#begun = more && (this.#begun || bytes.length > 0);
      if (decoded === undefined || decoded === null) {
        this.#rest = null;
        this.#begun = false;
        throw new TypeError("The encoded data was not valid");
      }
      return decoded;
    }
    #whole(bytes) {
      if (this.#encoding === "utf-8") return native.utf8Complete(bytes);
      if (this.#encoding === "windows-1252") return bytes.length;
      const even = bytes.length & ~1;
      const high = even >= 2 ? bytes[this.#encoding === "utf-16le" ? even - 1 : even - 2] : 0;
      return high >= 0xd8 && high <= 0xdb ? even - 2 : even;
    }
    #decode(bytes, keepsMark) {
      if (this.#encoding === "utf-8") return native.utf8Decode(bytes, this.#fatal, keepsMark);
      if (this.#encoding === "windows-1252") return native.windows1252Decode(bytes);
      const decoded = native.utf16Decode(bytes, this.#fatal, this.#encoding === "utf-16be");
      return !keepsMark && decoded?.startsWith("\ufeff") ? decoded.slice(1) : decoded;
    }
    get [Symbol.toStringTag]() { return "TextDecoder"; }
  }

  const wrong = (message) => new (part("events").DOMException)(message, "InvalidCharacterError");
  const btoa = (text) => {
    const bytes = native.latin1Encode(`${text}`.toWellFormed());
    if (bytes === undefined || bytes === null) throw wrong("The string to be encoded contains characters outside of the Latin1 range.");
    return native.base64Encode(bytes);
  };
  const atob = (text) => {
    let spelled = `${text}`.replace(/[\t\n\f\r ]+/g, "");
    if (spelled.length % 4 === 0) spelled = spelled.replace(/={1,2}$/, "");
    if (spelled.length % 4 === 1 || /[^A-Za-z0-9+/]/.test(spelled)) throw wrong("Failed to decode base64");
    return native.latin1Decode(native.base64Decode(spelled));
  };
  return { TextEncoder, TextDecoder, atob, btoa };
})
