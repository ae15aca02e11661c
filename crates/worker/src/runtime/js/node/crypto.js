(load, native) => {
  "use strict";
  const { Buffer } = load("node:buffer");
  const names = { sha1: "SHA-1", sha224: "SHA-224", sha256: "SHA-256", sha384: "SHA-384", sha512: "SHA-512", md5: "MD5" };
  const named = (algorithm) => {
    const name = names[String(algorithm).toLowerCase().replace(/^rsa-|-/g, "")];
    if (!name) throw new Error(`Digest method not supported: ${algorithm}; available: ${Object.keys(names).join(", ")}`);
    return name;
  };
  const bytes = (data, encoding) => (typeof data === "string" ? new Uint8Array(Buffer.from(data, encoding)) : new Uint8Array(data.buffer ?? data, data.byteOffset ?? 0, data.byteLength));
  const give = (made, encoding) => { const buffer = Buffer.from(made.buffer); return encoding && encoding !== "buffer" ? buffer.toString(encoding) : buffer; };
  class Hash {
    #parts = []; #finish; #done = false;
    constructor(finish) { this.#finish = finish; }
    update(data, encoding) { if (this.#done) throw new Error("Digest already called"); this.#parts.push(Buffer.from(bytes(data, encoding))); return this; }
    digest(encoding) { if (this.#done) throw new Error("Digest already called"); this.#done = true; return give(this.#finish(new Uint8Array(Buffer.concat(this.#parts))), encoding); }
    copy() { const other = new Hash(this.#finish); for (const part of this.#parts) other.update(part); return other; }
  }
  const random = (size) => Buffer.from(native.random(size).buffer);
  const missing = (name) => () => { throw new Error(`crypto.${name} is not available here: use createHash, createHmac, randomBytes, randomUUID, timingSafeEqual or crypto.subtle`); };
  const out = {
    createHash: (algorithm) => { const name = named(algorithm); return new Hash((data) => native.hash(name, data)); },
    createHmac: (algorithm, key) => { const name = named(algorithm); return new Hash((data) => native.hmac(name, bytes(key), data)); },
    hash: (algorithm, data, encoding = "hex") => give(native.hash(named(algorithm), bytes(data)), encoding),
    getHashes: () => Object.keys(names),
    randomBytes(size, callback) { const made = random(size); if (typeof callback === "function") queueMicrotask(() => callback(null, made)); return made; },
    randomUUID: () => native.uuid(),
    randomInt(least, most, callback) {
      if (most === undefined || typeof most === "function") [least, most, callback] = [0, least, most];
      const range = most - least;
      if (!(range > 0) || range > 2 ** 48) throw new RangeError("randomInt takes a range between 1 and 2^48");
      const limit = 2 ** 48 - (2 ** 48 % range);
      let drawn;
      do { const six = random(6); drawn = six.readUInt16BE(0) * 2 ** 32 + six.readUInt32BE(2); } while (drawn >= limit);
      if (typeof callback === "function") queueMicrotask(() => callback(null, least + (drawn % range)));
      return least + (drawn % range);
    },
    randomFillSync(view) { bytes(view).set(native.random(view.byteLength)); return view; },
    getRandomValues: (view) => globalThis.crypto.getRandomValues(view),
    timingSafeEqual(a, b) {
      const [x, y] = [bytes(a), bytes(b)];
      if (x.length !== y.length) throw new RangeError("Input buffers must have the same byte length");
      let differs = 0;
      for (let at = 0; at < x.length; at++) differs |= x[at] ^ y[at];
      return differs === 0;
    },
    get webcrypto() { return globalThis.crypto; },
    get subtle() { return globalThis.crypto.subtle; },
  };
  for (const name of ["createCipheriv", "createDecipheriv", "createSign", "createVerify", "pbkdf2", "pbkdf2Sync", "scrypt", "scryptSync", "generateKeyPairSync", "createPublicKey", "createPrivateKey"]) out[name] = missing(name);
  return out;
}
