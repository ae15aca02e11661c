// `FormData`, and the encoding and decoding of multipart bodies.
(function (native, part) {
  const { Blob, File, bytes, share } = part("blob");
  const { concat } = part("body");

  const entry = (name, value, filename) => {
    const key = `${name}`.toWellFormed();
    if (!(value instanceof Blob)) return [key, `${value}`.toWellFormed()];
    if (value instanceof File && filename === undefined) return [key, value];
    return [key, share(value, new File([], filename ?? "blob", { type: value.type }))];
  };

  class FormData {
    #list = [];
    constructor(form) { if (form !== undefined) throw new TypeError("FormData: HTML forms are not available here"); }
    append(name, value, filename) { this.#list.push(entry(name, value, filename)); }
    delete(name) { this.#list = this.#list.filter((it) => it[0] !== `${name}`); }
    get(name) { return this.#list.find((it) => it[0] === `${name}`)?.[1] ?? null; }
    getAll(name) { return this.#list.filter((it) => it[0] === `${name}`).map((it) => it[1]); }
    has(name) { return this.#list.some((it) => it[0] === `${name}`); }
    set(name, value, filename) {
      const made = entry(name, value, filename);
      const at = this.#list.findIndex((it) => it[0] === made[0]);
      if (at < 0) this.#list.push(made);
      else this.#list = this.#list.filter((it, here) => here <= at || it[0] !== made[0]).with(at, made);
    }
    forEach(callback, self) { for (const [name, value] of this) callback.call(self, value, name, this); }
    *entries() { for (const it of this.#list) yield [...it]; }
    *keys() { for (const it of this.#list) yield it[0]; }
    *values() { for (const it of this.#list) yield it[1]; }
    [Symbol.iterator]() { return this.entries(); }
    get [Symbol.toStringTag]() { return "FormData"; }
  }

  const quoted = (text) => text.replace(/\r\n|\r|\n/g, "%0D%0A").replace(/"/g, "%22");
  const multipart = (form) => {
    const boundary = `----belljar${native.uuid().replaceAll("-", "")}`;
    const pieces = [];
    for (const [name, value] of form) {
      let head = `--${boundary}\r\ncontent-disposition: form-data; name="${quoted(name)}"`;
      if (value instanceof File) {
        head += `; filename="${quoted(value.name)}"\r\ncontent-type: ${value.type || "application/octet-stream"}\r\n\r\n`;
        pieces.push(native.utf8Encode(head), bytes(value), native.utf8Encode("\r\n"));
      } else pieces.push(native.utf8Encode(`${head}\r\n\r\n${value.replace(/\r\n?|\n/g, "\r\n")}\r\n`));
    }
    pieces.push(native.utf8Encode(`--${boundary}--\r\n`));
    return { bytes: concat(pieces), type: `multipart/form-data; boundary=${boundary}` };
  };

  // Latin-1 text of the bytes, so that string functions can search it.
  const split = (body, boundary) => {
    const text = native.latin1Decode(body);
    const marks = [];
    for (let at = text.indexOf(`--${boundary}`); at >= 0; at = text.indexOf(`--${boundary}`, at + 1)) marks.push(at);
    if (marks.length === 0) throw new TypeError("Unable to parse body as form data: no boundary");
    return marks.slice(0, -1).map((from, at) => {
      const start = text.indexOf("\r\n", from) + 2;
      const middle = text.indexOf("\r\n\r\n", start);
      if (start < 2 || middle < 0 || middle > marks[at + 1]) throw new TypeError("Unable to parse body as form data: a part without a head");
      return { head: text.slice(start, middle), body: body.slice(middle + 4, marks[at + 1] - 2) };
    });
  };
  const utf8 = (latin1) => native.utf8Decode(native.latin1Encode(latin1), false, true);
  const parse = (body, type) => {
    const form = new FormData();
    const kind = type.split(";")[0].trim().toLowerCase();
    if (kind === "application/x-www-form-urlencoded") {
      for (const [name, value] of new (part("url").URLSearchParams)(native.utf8Decode(body, false, false))) form.append(name, value);
      return form;
    }
    const boundary = /boundary=(?:"([^"]+)"|([^;\s]+))/i.exec(type);
    if (kind !== "multipart/form-data" || !boundary) throw new TypeError("Body can not be decoded as form data");
    for (const it of split(body, boundary[1] ?? boundary[2])) {
      const field = (name) => new RegExp(`[;\\s]${name}="([^"]*)"`, "i").exec(it.head)?.[1];
      const name = field("name");
      if (name === undefined) throw new TypeError("Unable to parse body as form data: a part without a name");
      const plain = (text) => utf8(text).replace(/%0D%0A/gi, "\r\n").replace(/%22/g, '"');
      const filename = field("filename");
      if (filename === undefined) form.append(plain(name), native.utf8Decode(it.body, false, true));
      else {
        const of = /^content-type:\s*(.*)$/im.exec(it.head)?.[1].trim() ?? "text/plain";
        form.append(plain(name), new File([it.body], plain(filename), { type: of }));
      }
    }
    return form;
  };
  return { FormData, multipart, parse };
})
