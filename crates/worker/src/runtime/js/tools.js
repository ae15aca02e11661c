// `tools.SERVER.FUNCTION(input)` and `apis.NAME`. A missing name throws an error that lists the available ones.
(load, native) => {
  "use strict";
  // Names that the language or the runtime reads from any object.
  const quiet = new Set(["then", "toJSON", "inspect", "constructor", "valueOf", "toString", "length", "default", "prototype"]);
  const strict = (target, missing) =>
    new Proxy(target, {
      get(object, key, receiver) {
        if (typeof key === "symbol" || key in object || quiet.has(key)) return Reflect.get(object, key, receiver);
        throw new ReferenceError(missing(key));
      },
    });
  const among = (names) => (names.length ? `available: ${names.join(", ")}` : "none are available");

  const tools = (functions, call) => {
    const servers = Object.create(null);
    for (const [server, name, tool] of functions) {
      const own = (servers[server] ??= Object.create(null));
      const run = async (input = {}) => {
        const json = JSON.stringify(input);
        if (json === undefined) throw new TypeError(`tools.${server}.${name}: the input must be an object`);
        return JSON.parse(await call(server, tool, json.toWellFormed()));
      };
      own[name] = Object.defineProperty(run, "name", { value: name });
      // The function is also available by the tool's original name.
      if (!(tool in own)) Object.defineProperty(own, tool, { value: run, enumerable: false });
    }
    for (const server of Object.keys(servers)) {
      const own = servers[server];
      servers[server] = strict(own, (key) => `tools.${server} has no ${key}; ${among(Object.keys(own))}`);
    }
    return strict(servers, (key) => `tools has no server ${key}; ${among(Object.keys(servers))}`);
  };
  tools.apis = (clients) => strict(clients, (key) => `apis has no ${key}; ${among(Object.keys(clients))}`);
  return tools;
}
