// `crypto`: random values, hashes and HMAC keys.
(function (native, part) {
  const { bytesOf, isBuffer } = part("body");
  const fail = (message, name) => new (part("events").DOMException)(message, name);
  const secret = Symbol("key");
  const HASHES = { "SHA-1": 64, "SHA-256": 64, "SHA-384": 128, "SHA-512": 128 };

  const bytes = (value) => {
    if (!isBuffer(value)) throw new TypeError("the argument must be an ArrayBuffer or a view of one");
    return bytesOf(value).slice();
  };
  const algorithm = (given) => {
    const name = `${typeof given === "object" && given !== null ? given.name : given}`.toUpperCase();
    return typeof given === "object" && given !== null ? { ...given, name } : { name };
  };
  const hash = (given) => {
    const { name } = algorithm(given ?? "");
    if (!(name in HASHES)) throw fail(`Unrecognized algorithm name: ${name}; use SHA-1, SHA-256, SHA-384 or SHA-512`, "NotSupportedError");
    return name;
  };
  const isHmac = (given) => {
    const known = algorithm(given);
    if (known.name !== "HMAC") throw fail(`${known.name} is not available here: only digest and HMAC keys to sign and verify are`, "NotSupportedError");
    return known;
  };

  class CryptoKey {
    constructor(key, fields) {
      if (key !== secret) throw new TypeError("Illegal constructor");
      const { bytes, ...shown } = fields;
      Object.defineProperty(this, secret, { value: bytes });
      for (const [name, value] of Object.entries(shown)) Object.defineProperty(this, name, { value, enumerable: true });
    }
    get [Symbol.toStringTag]() { return "CryptoKey"; }
  }
  const usable = (key, usage) => {
    if (!(key instanceof CryptoKey)) throw new TypeError("the key must be a CryptoKey");
    if (!key.usages.includes(usage)) throw fail(`the key does not allow the usage ${usage}`, "InvalidAccessError");
    return key;
  };
  const base64url = (given) => given.toBase64({ alphabet: "base64url", omitPadding: true });

  class SubtleCrypto {
    async digest(given, data) { return native.hash(hash(given), bytes(data)).buffer; }
    async importKey(format, data, given, extractable, usages) {
      const known = isHmac(given);
      let raw;
      if (format === "raw") raw = bytes(data);
      else if (format === "jwk") raw = Uint8Array.fromBase64(data.k, { alphabet: "base64url" });
      else throw fail(`unsupported key format: ${format}`, "NotSupportedError");
      if (raw.length === 0) throw fail("Key length is zero", "DataError");
      return this.#key(raw, hash(known.hash), extractable, usages);
    }
    async generateKey(given, extractable, usages) {
      const known = isHmac(given);
      const name = hash(known.hash);
      return this.#key(native.random(known.length === undefined ? HASHES[name] : Math.ceil(known.length / 8)), name, extractable, usages);
    }
    #key(raw, name, extractable, usages) {
      if (![...usages].every((it) => it === "sign" || it === "verify") || [...usages].length === 0) throw fail("Invalid key usage", "SyntaxError");
      return new CryptoKey(secret, {
        type: "secret",
        extractable: !!extractable,
        algorithm: { name: "HMAC", length: raw.length * 8, hash: { name } },
        usages: [...usages],
        bytes: raw,
      });
    }
    async exportKey(format, key) {
      if (!key.extractable) throw fail("Key is not extractable", "InvalidAccessError");
      if (format === "raw") return key[secret].slice().buffer;
      if (format !== "jwk") throw fail(`unsupported key format: ${format}`, "NotSupportedError");
      return { kty: "oct", alg: `HS${key.algorithm.hash.name.slice(4)}`, k: base64url(key[secret]), key_ops: key.usages, ext: true };
    }
    async sign(given, key, data) {
      isHmac(given);
      return native.hmac(usable(key, "sign").algorithm.hash.name, key[secret], bytes(data)).buffer;
    }
    async verify(given, key, signature, data) {
      isHmac(given);
      const made = native.hmac(usable(key, "verify").algorithm.hash.name, key[secret], bytes(data));
      const said = bytes(signature);
      let differs = made.length ^ said.length;
      for (let at = 0; at < made.length; at++) differs |= made[at] ^ (said[at] ?? 0);
      return differs === 0;
    }
    get [Symbol.toStringTag]() { return "SubtleCrypto"; }
  }
  for (const name of ["encrypt", "decrypt", "deriveBits", "deriveKey", "wrapKey", "unwrapKey"]) {
    SubtleCrypto.prototype[name] = async () => {
      throw fail(`crypto.subtle.${name} is not available here: only digest and HMAC keys to sign and verify are`, "NotSupportedError");
    };
  }

  class Crypto {
    #subtle = new SubtleCrypto();
    get subtle() { return this.#subtle; }
    getRandomValues(into) {
      if (!ArrayBuffer.isView(into) || /Float|DataView/.test(into[Symbol.toStringTag] ?? "DataView")) throw fail("The provided ArrayBufferView is not an integer array type", "TypeMismatchError");
      if (into.byteLength > 65536) throw fail(`The ArrayBufferView's byte length (${into.byteLength}) exceeds the number of bytes of entropy available via this API (65536)`, "QuotaExceededError");
      bytesOf(into).set(native.random(into.byteLength));
      return into;
    }
    randomUUID() { return native.uuid(); }
    get [Symbol.toStringTag]() { return "Crypto"; }
  }
  return { crypto: new Crypto(), Crypto, CryptoKey, SubtleCrypto };
})
