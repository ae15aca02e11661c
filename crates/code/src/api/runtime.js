// The client of a declared service. The contents of an OpenAPI document arrive as data, never as code.

/** Thrown when a service responds with an error status. */
export class ApiError extends Error {
  constructor(method, url, response, body) {
    let detail = typeof body === "string" ? body : body === undefined ? "" : JSON.stringify(body);
    if (detail.length > 300) detail = detail.slice(0, 300) + "…";
    const reason = response.statusText ? " " + response.statusText : "";
    super(`${method} ${url}: ${response.status}${reason}${detail ? ": " + detail : ""}`);
    this.name = "ApiError";
    this.status = response.status;
    this.body = body;
    this.headers = Object.fromEntries(response.headers);
  }
}

const isObject = (value) => typeof value === "object" && value !== null;
const isGone = (value) => value === undefined || value === null;
const own = (object, key) => Object.prototype.hasOwnProperty.call(object, key);
const isBytes = (value) => value instanceof Uint8Array || value instanceof ArrayBuffer;

function text(value) {
  if (value instanceof Date) return value.toISOString();
  return isObject(value) ? JSON.stringify(value) : String(value);
}

const encode = (value) => encodeURIComponent(text(value));
const entries = (value) => Object.entries(value).filter(([, it]) => !isGone(it));
const isList = (value) => Array.isArray(value);
const isPlain = (value) => isObject(value) && !(value instanceof Date);

/** Returns the percent-encoded `key=value` pairs of one query parameter. */
function pairs(name, value, style, explode) {
  const key = encodeURIComponent(name);
  if (isGone(value)) return [];
  if (isList(value)) {
    if (explode && style !== "deepObject") return value.map((it) => `${key}=${encode(it)}`);
    const gap = { spaceDelimited: "%20", pipeDelimited: "%7C" }[style] ?? ",";
    return [`${key}=${value.map(encode).join(gap)}`];
  }
  if (isPlain(value)) {
    if (style === "deepObject") {
      return entries(value).flatMap(([inner, it]) => pairs(`${name}[${inner}]`, it, style, true));
    }
    if (explode) return entries(value).map(([inner, it]) => `${encode(inner)}=${encode(it)}`);
    return [`${key}=${entries(value).flat().map(encode).join(",")}`];
  }
  return [`${key}=${encode(value)}`];
}

/** Returns the encoded pairs of a query object that no document describes. */
function queryPairs(query) {
  if (isGone(query)) return [];
  if (typeof query === "string") return [query.replace(/^\?/, "")].filter(Boolean);
  const all = typeof query.entries === "function" ? [...query.entries()] : entries(query);
  return all.flatMap(([name, value]) => pairs(name, value, isPlain(value) && !isList(value) ? "deepObject" : "form", true));
}

/** Returns the encoded text that replaces a parameter in a path. */
function pathText(name, value, style, explode) {
  const inner = (glue, between) =>
    isList(value) ? value.map(encode).join(glue)
    : isPlain(value) ? entries(value).map(([key, it]) => encode(key) + between + encode(it)).join(glue)
    : encode(value);
  let out;
  if (style === "label") out = "." + inner(explode ? "." : ",", explode ? "=" : ",");
  else if (style === "matrix") {
    const key = encodeURIComponent(name);
    if (isList(value) && explode) out = value.map((it) => `;${key}=${encode(it)}`).join("");
    else if (isPlain(value) && explode && !isList(value)) out = entries(value).map(([k, it]) => `;${encode(k)}=${encode(it)}`).join("");
    else out = `;${key}=${inner(",", ",")}`;
  } else out = inner(",", explode ? "=" : ",");
  // These values would change the path that the document describes (path traversal).
  if (out === "" || out === "." || out === "..") throw new TypeError(`\`${name}\` cannot be ${JSON.stringify(text(value))} in a path`);
  return out;
}

function multipart(body) {
  const boundary = "belljar-" + crypto.randomUUID();
  const parts = [];
  const quoted = (name) => String(name).replace(/["\r\n]/g, encodeURIComponent);
  for (const [name, value] of typeof body.entries === "function" ? body.entries() : entries(body)) {
    for (const one of isList(value) ? value : [value]) {
      const bytes = isBytes(one);
      const file = bytes || one instanceof Blob ? `; filename="${quoted(one.name ?? "file")}"` : "";
      const type = file ? `content-type: ${quoted(one.type || "application/octet-stream")}\r\n` : "";
      parts.push(`--${boundary}\r\ncontent-disposition: form-data; name="${quoted(name)}"${file}\r\n${type}\r\n`);
      parts.push(file ? one : text(one), "\r\n");
    }
  }
  parts.push(`--${boundary}--\r\n`);
  return { body: new Blob(parts), type: `multipart/form-data; boundary=${boundary}` };
}

function encodeBody(kind, type, body) {
  switch (kind) {
    case "json": return { body: JSON.stringify(body), type };
    case "form": {
      const form = typeof body === "string" ? body : queryPairs(body).join("&").replace(/%20/g, "+");
      return { body: form, type };
    }
    case "multipart": return multipart(body);
    case "text": return { body: text(body), type };
    default: return { body, type };
  }
}

async function readBody(method, url, response) {
  const type = (response.headers.get("content-type") ?? "").toLowerCase();
  let body;
  if (method === "HEAD") body = Object.fromEntries(response.headers);
  else if (/^application\/([\w.+-]*\+)?json/.test(type) || /^text\/json/.test(type)) {
    const content = await response.text();
    try {
      body = content === "" ? undefined : JSON.parse(content);
    } catch (error) {
      if (response.ok) throw new SyntaxError(`${method} ${url}: the response is not valid JSON: ${error.message}`);
      body = content;
    }
  } else if (type === "" || /^text\/|xml|javascript|x-www-form-urlencoded/.test(type)) {
    const content = await response.text();
    body = content === "" && type === "" ? undefined : content;
  } else body = new Uint8Array(await response.arrayBuffer());
  if (!response.ok) throw new ApiError(method, url, response, body);
  return body;
}

export function make({ name, base, auth }, groups) {
  const origin = base === null ? null : new URL(base).origin;

  function absolute(path) {
    const given = path instanceof URL ? path.href : String(path);
    if (/^https?:\/\//i.test(given)) return given;
    if (base === null) throw new TypeError(`apis.${name}: use an absolute URL; this api has no base-url`);
    return base + (given.startsWith("/") || given.startsWith("?") || given === "" ? given : "/" + given);
  }

  /** Adds placeholders to requests to the service's own origin, and to no other origin. */
  function withPlaceholders(url, headers) {
    const parsed = new URL(url);
    if (parsed.origin !== origin) return url;
    for (const [variable, slot, where, scheme] of auth) {
      const placeholder = globalThis.process?.env?.[variable];
      if (!placeholder) continue;
      if (slot === "query") {
        if (!parsed.searchParams.has(where)) url += (url.includes("?") ? "&" : "?") + `${encodeURIComponent(where)}=${encodeURIComponent(placeholder)}`;
      } else if (!headers.has(where)) {
        headers.set(where, scheme === "Basic" ? "Basic " + btoa(placeholder.includes(":") ? placeholder : `x:${placeholder}`) : scheme ? `${scheme} ${placeholder}` : placeholder);
      }
    }
    return url;
  }

  function plain(path, init = {}) {
    const headers = new Headers(init.headers);
    const url = withPlaceholders(absolute(path), headers);
    return fetch(url, { ...init, headers });
  }

  async function ask(method, path, { query, body, headers: extra, signal } = {}, kind, type) {
    const headers = new Headers(extra);
    if (!headers.has("accept")) headers.set("accept", "application/json, */*;q=0.5");
    let sent;
    if (!isGone(body)) {
      if (kind === undefined) {
        const raw = typeof body === "string" || isBytes(body) || body instanceof Blob || body instanceof URLSearchParams;
        [kind, type] = raw ? ["bytes", undefined] : ["json", "application/json"];
      }
      const put = encodeBody(kind, type, body);
      sent = put.body;
      if (put.type && (kind === "multipart" || !headers.has("content-type"))) headers.set("content-type", put.type);
    }
    let url = absolute(path);
    const more = queryPairs(query);
    if (more.length > 0) url += (url.includes("?") ? "&" : "?") + more.join("&");
    const shown = url;
    url = withPlaceholders(url, headers);
    const init = { method, headers };
    if (sent !== undefined) init.body = sent;
    if (signal) init.signal = signal;
    return readBody(method, shown, await fetch(url, init));
  }

  /** Returns the function that calls one operation of the document. */
  function operation(called, [method, template, parameters, content]) {
    const known = new Map(parameters.map((parameter) => [parameter[0], parameter]));
    const where = `apis.${name}.${called}`;
    const run = async (args = {}, options = {}) => {
      if (!isObject(args) || isList(args)) throw new TypeError(`${where} takes one object of arguments`);
      for (const key of Object.keys(args)) {
        if (!known.has(key) && !(key === "body" && content)) {
          const names = [...known.keys(), ...(content ? ["body"] : [])];
          throw new TypeError(`${where}: unknown argument \`${key}\`; ${names.length ? "expected " + names.join(", ") : "it takes no arguments"}`);
        }
      }
      const query = [], cookies = [], inside = new Map();
      const headers = new Headers(options.headers);
      for (const [arg, wire, place, style, explode, required] of parameters) {
        const value = own(args, arg) ? args[arg] : undefined;
        if (isGone(value)) {
          if (required) throw new TypeError(`${where}: \`${arg}\` is missing`);
          continue;
        }
        if (place === "path") inside.set(wire, pathText(wire, style === "json" ? JSON.stringify(value) : value, style, explode));
        else if (place === "query") query.push(...(style === "json" ? [`${encodeURIComponent(wire)}=${encodeURIComponent(JSON.stringify(value))}`] : pairs(wire, value, style, explode)));
        else if (place === "header") headers.set(wire, style === "json" ? JSON.stringify(value) : isList(value) ? value.map(text).join(",") : isPlain(value) ? entries(value).map(([k, it]) => k + (explode ? "=" : ",") + text(it)).join(",") : text(value));
        else cookies.push(`${wire}=${encode(value)}`);
      }
      if (cookies.length > 0) headers.set("cookie", cookies.join("; "));
      const body = content && own(args, "body") ? args.body : undefined;
      if (content?.[2] && isGone(body)) throw new TypeError(`${where}: \`body\` is missing`);
      const path = template.replace(/\{([^{}]*)\}/g, (whole, key) => inside.get(key) ?? whole);
      const target = query.length > 0 ? path + "?" + query.join("&") : path;
      return ask(method, target, { body, headers, signal: options.signal }, content?.[0], content?.[1]);
    };
    Object.defineProperty(run, "name", { value: called });
    return run;
  }

  const client = Object.create(null);
  const fixed = (object, key, value) => Object.defineProperty(object, key, { value, enumerable: true });
  fixed(client, "fetch", plain);
  for (const method of ["get", "post", "put", "patch", "delete", "head"]) {
    fixed(client, method, (path, options) => ask(method.toUpperCase(), path, options));
  }
  for (const [group, source] of groups) {
    let made;
    const build = (into, prefix) => {
      for (const [called, ...rest] of JSON.parse(source)) fixed(into, called, operation(prefix + called, rest));
      return into;
    };
    if (group === "") build(client, "");
    // Groups are built on first use: most programs use few groups of a large service.
    else Object.defineProperty(client, group, { enumerable: true, get: () => (made ??= Object.freeze(build(Object.create(null), group + "."))) });
  }
  return Object.freeze(client);
}
