(load, native) => ({
  get URL() { return globalThis.URL; },
  get URLSearchParams() { return globalThis.URLSearchParams; },
  fileURLToPath: (url) => { const it = new URL(url); if (it.protocol !== "file:") throw new TypeError("The URL must be of scheme file"); return decodeURIComponent(it.pathname); },
  pathToFileURL: (path) => new URL(`file://${load("node:path").resolve(path).split("/").map(encodeURIComponent).join("/")}`),
  parse: (text, query) => {
    let it;
    try { it = new URL(text); } catch { it = new URL(text, "none://none"); }
    const none = it.protocol === "none:";
    return { href: text, protocol: none ? null : it.protocol, host: none ? null : it.host, hostname: none ? null : it.hostname, port: it.port || null, pathname: it.pathname, search: it.search || null, hash: it.hash || null, path: it.pathname + it.search, auth: it.username ? `${it.username}:${it.password}` : null, query: query ? Object.fromEntries(it.searchParams) : it.search.slice(1) || null };
  },
  format: (it) => (typeof it === "string" ? it : it instanceof URL ? it.href : `${it.protocol ? it.protocol.replace(/:?$/, ":") : ""}//${it.host ?? it.hostname ?? ""}${it.port && !it.host ? `:${it.port}` : ""}${it.pathname ?? ""}${it.search ?? (it.query ? `?${new URLSearchParams(it.query)}` : "")}${it.hash ?? ""}`),
  resolve: (from, to) => { const it = new URL(to, new URL(from, "none://none")); return it.protocol === "none:" ? it.pathname + it.search + it.hash : it.href; },
  domainToASCII: (text) => { try { return new URL(`http://${text}`).hostname; } catch { return ""; } },
})
