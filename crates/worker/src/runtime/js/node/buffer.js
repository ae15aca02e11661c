(load, native) => {
  "use strict";
  const latin1 = (bytes) => { let out = ""; for (let at = 0; at < bytes.length; at += 8192) out += String.fromCharCode(...bytes.subarray(at, at + 8192)); return out; };
  const encode = (text, encoding = "utf8") => {
    switch (String(encoding).toLowerCase()) {
      case "utf8": case "utf-8": return new TextEncoder().encode(text);
      case "hex": return Uint8Array.fromHex(/^(?:[0-9a-fA-F]{2})*/.exec(text)[0]);
      case "base64": case "base64url": return native.base64Decode(text.replace(/[^A-Za-z0-9+\/_-]/g, "")) ?? new Uint8Array();
      case "latin1": case "binary": case "ascii": return Uint8Array.from(text, (c) => c.charCodeAt(0) & 0xff);
      case "ucs2": case "ucs-2": case "utf16le": case "utf-16le": { const out = new Uint8Array(text.length * 2); for (let at = 0; at < text.length; at++) { out[at * 2] = text.charCodeAt(at) & 0xff; out[at * 2 + 1] = text.charCodeAt(at) >> 8; } return out; }
      default: throw Object.assign(new TypeError(`Unknown encoding: ${encoding}`), { code: "ERR_UNKNOWN_ENCODING" });
    }
  };
  const decode = (bytes, encoding = "utf8") => {
    switch (String(encoding).toLowerCase()) {
      case "utf8": case "utf-8": return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
      case "hex": return Uint8Array.prototype.toHex.call(bytes);
      case "base64": return Uint8Array.prototype.toBase64.call(bytes);
      case "base64url": return Uint8Array.prototype.toBase64.call(bytes, { alphabet: "base64url", omitPadding: true });
      case "latin1": case "binary": return latin1(bytes);
      case "ascii": return latin1(bytes.map((byte) => byte & 0x7f));
      case "ucs2": case "ucs-2": case "utf16le": case "utf-16le": { let out = ""; for (let at = 0; at + 1 < bytes.length; at += 2) out += String.fromCharCode(bytes[at] | (bytes[at + 1] << 8)); return out; }
      default: throw Object.assign(new TypeError(`Unknown encoding: ${encoding}`), { code: "ERR_UNKNOWN_ENCODING" });
    }
  };
  const own = (bytes) => Object.setPrototypeOf(bytes instanceof Uint8Array ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength) : new Uint8Array(bytes), Buffer.prototype);
  const bytesOf = (value, encoding) => (typeof value === "string" ? encode(value, encoding) : typeof value === "number" ? [value & 0xff] : value);

  class Buffer extends Uint8Array {
    static poolSize = 8192;
    static from(value, encoding, length) {
      if (typeof value === "string") return own(encode(value, encoding));
      if (value instanceof ArrayBuffer) return own(new Uint8Array(value, encoding, length));
      if (value?.type === "Buffer" && Array.isArray(value.data)) return own(Uint8Array.from(value.data));
      if (value !== null && typeof value === "object") return own(Uint8Array.from(value));
      throw new TypeError("The first argument must be of type string or an instance of Buffer, ArrayBuffer, or Array");
    }
    static of(...items) { return own(Uint8Array.from(items)); }
    static alloc(size, fill, encoding) { const made = own(new Uint8Array(size)); return fill === undefined ? made : made.fill(fill, 0, size, encoding); }
    static allocUnsafe(size) { return Buffer.alloc(size); }
    static allocUnsafeSlow(size) { return Buffer.alloc(size); }
    static isBuffer(value) { return value instanceof Buffer; }
    static isEncoding(name) { try { encode("", name); return true; } catch { return false; } }
    static byteLength(value, encoding) { return typeof value === "string" ? encode(value, encoding).length : value.byteLength; }
    static concat(list, total = list.reduce((sum, one) => sum + one.length, 0)) {
      const out = Buffer.alloc(total);
      let at = 0;
      for (const one of list) { if (at >= total) break; out.set(one.subarray(0, total - at), at); at += one.length; }
      return out;
    }
    static compare(a, b) {
      for (let at = 0; at < Math.min(a.length, b.length); at++) if (a[at] !== b[at]) return a[at] < b[at] ? -1 : 1;
      return Math.sign(a.length - b.length);
    }
    toString(encoding, start = 0, end = this.length) { return decode(this.subarray(start, end), encoding); }
    toJSON() { return { type: "Buffer", data: Array.from(this) }; }
    equals(other) { return Buffer.compare(this, other) === 0; }
    compare(other) { return Buffer.compare(this, other); }
    slice(start, end) { return this.subarray(start, end); }
    subarray(start, end) { return own(super.subarray(start, end)); }
    write(text, offset = 0, length, encoding) {
      if (typeof offset === "string") [encoding, offset, length] = [offset, 0, undefined];
      if (typeof length === "string") [encoding, length] = [length, undefined];
      const data = encode(text, encoding).subarray(0, Math.min(length ?? Infinity, this.length - offset));
      this.set(data, offset);
      return data.length;
    }
    copy(target, at = 0, start = 0, end = this.length) { const part = this.subarray(start, Math.min(end, start + target.length - at)); target.set(part, at); return part.length; }
    fill(value, start = 0, end = this.length, encoding) {
      const data = bytesOf(value, typeof start === "string" ? start : encoding);
      const from = typeof start === "string" ? 0 : start;
      if (data.length === 1) return super.fill(data[0], from, end);
      for (let at = from; at < end && data.length; at++) this[at] = data[(at - from) % data.length];
      return this;
    }
    indexOf(value, from = 0, encoding) {
      const data = bytesOf(value, encoding);
      for (let at = from < 0 ? Math.max(0, this.length + from) : from; at + data.length <= this.length; at++) {
        let same = 0;
        while (same < data.length && this[at + same] === data[same]) same += 1;
        if (same === data.length) return at;
      }
      return -1;
    }
    includes(value, from, encoding) { return this.indexOf(value, from, encoding) >= 0; }
    swap16() { for (let at = 0; at + 1 < this.length; at += 2) [this[at], this[at + 1]] = [this[at + 1], this[at]]; return this; }
    [Symbol.for("nodejs.util.inspect.custom")]() {
      const more = this.length > 50 ? ` ... ${this.length - 50} more bytes` : "";
      return `<Buffer${Array.from(this.subarray(0, 50), (byte) => " " + byte.toString(16).padStart(2, "0")).join("")}${more}>`;
    }
  }
  const view = (buffer) => new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  const numbers = { UInt8: ["Uint8", 1], Int8: ["Int8", 1], UInt16: ["Uint16", 2], Int16: ["Int16", 2], UInt32: ["Uint32", 4], Int32: ["Int32", 4], Float: ["Float32", 4], Double: ["Float64", 8], BigUInt64: ["BigUint64", 8], BigInt64: ["BigInt64", 8] };
  for (const [name, [kind, size]] of Object.entries(numbers)) {
    for (const [end, little] of size === 1 ? [["", true]] : [["LE", true], ["BE", false]]) {
      const read = function (offset = 0) { return view(this)[`get${kind}`](offset, little); };
      const write = function (value, offset = 0) { view(this)[`set${kind}`](offset, value, little); return offset + size; };
      for (const spelled of [name, name.replace("UInt", "Uint")]) {
        Object.defineProperty(Buffer.prototype, `read${spelled}${end}`, { value: read, writable: true, configurable: true });
        Object.defineProperty(Buffer.prototype, `write${spelled}${end}`, { value: write, writable: true, configurable: true });
      }
    }
  }
  return { Buffer, kMaxLength: 2 ** 32, constants: { MAX_LENGTH: 2 ** 32, MAX_STRING_LENGTH: 2 ** 29 }, get Blob() { return globalThis.Blob; }, atob: (text) => atob(text), btoa: (text) => btoa(text), isUtf8: (data) => { try { new TextDecoder("utf-8", { fatal: true }).decode(data); return true; } catch { return false; } } };
}
