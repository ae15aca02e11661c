// `fetch`, `Request` and `Response`. The broker outside the box checks every request.
(function (native, part, global) {
  const { Headers, freeze, received } = part("headers");
  const { Body, Content, extract, own } = part("body");
  const { URL } = part("url");
  const { AbortSignal } = part("events");

  const address = (input) => {
    const url = URL.parse(`${input}`);
    if (url === null) throw new TypeError(`Invalid URL: ${JSON.stringify(`${input}`)}`);
    return url;
  };
  const method = (given) => {
    const text = `${given}`;
    const upper = text.toUpperCase();
    if (!/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(text)) throw new TypeError(`Method is not valid: ${text}`);
    if (["CONNECT", "TRACE", "TRACK"].includes(upper)) throw new TypeError(`Method is forbidden: ${text}`);
    return ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"].includes(upper) ? upper : text;
  };

  class Request extends Body {
    #url;
    #method = "GET";
    #headers;
    #redirect = "follow";
    #signal;
    #more = {};

    constructor(input, init = {}) {
      super();
      if (arguments.length === 0) throw new TypeError("Request: a URL is needed");
      const from = input instanceof Request ? input : null;
      const given = init ?? {};
      this.#url = from ? from.#url : address(input);
      if (this.#url.username || this.#url.password) throw new TypeError("a URL with credentials cannot be fetched: put them into the header `authorization`");
      this.#method = given.method === undefined ? from?.#method ?? "GET" : method(given.method);
      this.#headers = new Headers(given.headers ?? from?.#headers);
      this.#redirect = given.redirect ?? from?.#redirect ?? "follow";
      if (!["follow", "error", "manual"].includes(this.#redirect)) throw new TypeError(`no such way to redirect: ${this.#redirect}`);
      const signal = given.signal === undefined ? from?.#signal : given.signal;
      if (signal && !(signal instanceof AbortSignal)) throw new TypeError("the signal of a request is an AbortSignal");
      this.#signal = signal ?? null;
      for (const name of ["cache", "credentials", "mode", "referrer", "referrerPolicy", "integrity", "keepalive", "duplex"]) {
        this.#more[name] = given[name] ?? from?.#more[name];
      }
      const hasBody = given.body !== undefined && given.body !== null;
      if ((hasBody || (from?.[own] && given.body === undefined)) && ["GET", "HEAD"].includes(this.#method)) {
        throw new TypeError("Request with GET/HEAD method cannot have body.");
      }
      if (hasBody) {
        const { content, type } = extract(given.body);
        this[own] = content;
        if (type !== null && !this.#headers.has("content-type")) this.#headers.set("content-type", type);
      } else if (from?.[own] && given.body === undefined) {
        if (from[own].isUsed || from[own].isLocked) throw new TypeError("Cannot construct a Request with a Request object that has already been used.");
        this[own] = Object.assign(new Content(), from[own]);
        from[own].used = true;
      }
    }
    get url() { return this.#url.href; }
    get method() { return this.#method; }
    get headers() { return this.#headers; }
    get redirect() { return this.#redirect; }
    get signal() { return (this.#signal ??= new (part("events").AbortController)().signal); }
    get cache() { return this.#more.cache ?? "default"; }
    get credentials() { return this.#more.credentials ?? "same-origin"; }
    get mode() { return this.#more.mode ?? "cors"; }
    get referrer() { return this.#more.referrer ?? "about:client"; }
    get referrerPolicy() { return this.#more.referrerPolicy ?? ""; }
    get integrity() { return this.#more.integrity ?? ""; }
    get keepalive() { return !!this.#more.keepalive; }
    get duplex() { return "half"; }
    get destination() { return ""; }
    clone() {
      const body = this[own]?.clone() ?? null;
      const made = new Request(this.#url, { method: this.#method, headers: this.#headers, redirect: this.#redirect, signal: this.#signal, ...this.#more });
      made[own] = body;
      return made;
    }
    get [Symbol.toStringTag]() { return "Request"; }
  }

  const EMPTY = [101, 103, 204, 205, 304];
  class Response extends Body {
    #status;
    #statusText;
    #headers;
    #told = { url: "", redirected: false, type: "default" };

    constructor(body = null, init = {}) {
      super();
      const given = init ?? {};
      const status = given.status === undefined ? 200 : Number(given.status);
      if (!(status >= 200 && status <= 599) && status !== 101) throw new RangeError(`The status provided (${given.status}) is not equal to 101 and outside the range [200, 599]`);
      const text = given.statusText === undefined ? "" : `${given.statusText}`;
      if (/[^\t -~\x80-\xff]/.test(text)) throw new TypeError("Invalid status text");
      this.#status = Math.trunc(status);
      this.#statusText = text;
      this.#headers = new Headers(given.headers);
      if (body !== null && body !== undefined) {
        if (EMPTY.includes(this.#status)) throw new TypeError("Response with null body status cannot have body");
        const { content, type } = extract(body);
        this[own] = content;
        if (type !== null && !this.#headers.has("content-type")) this.#headers.set("content-type", type);
      }
    }
    get status() { return this.#status; }
    get statusText() { return this.#statusText; }
    get ok() { return this.#status >= 200 && this.#status <= 299; }
    get headers() { return this.#headers; }
    get url() { return this.#told.url; }
    get redirected() { return this.#told.redirected; }
    get type() { return this.#told.type; }
    clone() {
      const body = this[own]?.clone() ?? null;
      const made = new Response(null, { headers: this.#headers });
      made.#status = this.#status;
      made.#statusText = this.#statusText;
      made.#told = this.#told;
      made[own] = body;
      return made;
    }
    static json(data, init = {}) {
      const text = JSON.stringify(data);
      if (text === undefined) throw new TypeError("Value is not JSON serializable.");
      const made = new Response(text, { ...init, headers: undefined });
      made.#headers = new Headers(init?.headers);
      if (!made.#headers.has("content-type")) made.#headers.set("content-type", "application/json");
      return made;
    }
    static error() {
      const made = new Response();
      made.#status = 0;
      made.#told = { url: "", redirected: false, type: "error" };
      freeze(made.#headers);
      return made;
    }
    static redirect(url, status = 302) {
      if (![301, 302, 303, 307, 308].includes(status)) throw new RangeError(`Invalid redirect status code: ${status}`);
      const made = new Response(null, { headers: { location: address(url).href } });
      made.#status = status;
      freeze(made.#headers);
      return made;
    }
    static received(answer, content) {
      const made = new Response();
      made.#status = answer.status;
      made.#statusText = answer.statusText;
      made.#headers = received(answer.headers);
      made.#told = { url: answer.url.replace(/#.*$/s, ""), redirected: answer.redirected, type: answer.type ?? "basic" };
      made[own] = content;
      return made;
    }
    get [Symbol.toStringTag]() { return "Response"; }
    [Symbol.for("nodejs.util.inspect.custom")](depth, options, inspect) {
      const { status, statusText, url, redirected, headers, bodyUsed, ok } = this;
      const shown = { ok, status, statusText, url, redirected, bodyUsed, headers: Object.fromEntries(headers.entries()) };
      return inspect ? `Response ${inspect(shown, options)}` : shown;
    }
  }
  const answered = Response.received;
  delete Response.received;

  // data: URLs need no network.
  const inline = (url) => {
    const found = /^data:([^,]*?)(;\s*base64)?,(.*)$/is.exec(url.href.replace(/#.*$/s, ""));
    if (!found) throw new TypeError("Invalid data: URL");
    const [, type, coded, rest] = found;
    const bytes = native.latin1Encode(rest.replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(parseInt(hex, 16))));
    const content = new Content();
    content.bytes = coded ? native.base64Decode(native.latin1Decode(bytes)) : bytes;
    if (content.bytes === null) throw new TypeError("Invalid data: URL");
    const known = type.startsWith(";") ? `text/plain${type}` : type || "text/plain;charset=US-ASCII";
    return answered({ status: 200, statusText: "OK", headers: ["content-type", known], url: url.href, redirected: false }, content);
  };

  const pump = async (id, stream, content) => {
    const reader = stream.getReader();
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const chunk = typeof value === "string" ? native.utf8Encode(value.toWellFormed()) : part("body").bytesOf(value);
        if (chunk.byteLength > 0 && !(await native.bodyWrite(id, chunk))) {
          reader.cancel().catch(() => {});
          return;
        }
      }
      await native.bodyEnd(id, undefined);
    } catch (error) {
      content.failure ??= error;
      await native.bodyEnd(id, `${error?.message ?? error}`);
    }
  };

  function fetch(input, init = undefined) {
    // Created before the request, so that its stack shows the call in the program.
    const failure = new TypeError("");
    const run = async () => {
      const request = new Request(input, init);
      const url = address(request.url);
      const signal = init?.signal === undefined ? (input instanceof Request ? input.signal : null) : init.signal;
      signal?.throwIfAborted();
      if (url.protocol === "data:") return inline(url);
      if (url.protocol === "file:") throw new TypeError("file: cannot be fetched: read files with `fs` or `Deno.readTextFile`");
      if (!/^https?:$/.test(url.protocol)) throw new TypeError(`Url scheme '${url.protocol.slice(0, -1)}' not supported: only http: and https: can be fetched`);
      const id = native.exchange();
      const content = Content.exchange(id);
      const stop = () => content.abort(signal.reason);
      signal?.addEventListener("abort", stop, { once: true });
      const sent = request[own];
      sent?.claim();
      if (sent?.stream) {
        native.bodyOpen(id);
        pump(id, sent.stream, content);
      }
      const answer = await native.fetch(id, {
        method: request.method,
        url: request.url,
        headers: [...request.headers].flat(),
        body: sent === null ? null : sent.stream !== null ? true : sent.bytes ?? sent.text,
        redirect: request.redirect,
      });
      if (content.failure) throw content.failure;
      if (answer.error !== undefined) {
        failure.message = answer.error;
        if (answer.code !== undefined) {
          const { code, refusal: status, retryAfter } = answer;
          failure.cause = { code, status, ...(retryAfter === undefined ? {} : { retryAfter }) };
        }
        throw failure;
      }
      if (request.method === "HEAD" || EMPTY.includes(answer.status)) {
        native.readAll(id, false);
        return answered(answer, null);
      }
      return answered(answer, content);
    };
    return run();
  }
  return { fetch, Request, Response };
})
