// `tools.SERVER.FUNCTION(input)` and `apis.NAME`: objects that say what there is when asked for more.
(load, native) => {
  "use strict";
  // What the language itself asks of any object.
  const quiet = new Set(["then", "toJSON", "inspect", "constructor", "valueOf", "toString", "length", "default", "prototype"]);
  const strict = (target, missing) =>
    new Proxy(target, {
      get(object, key, receiver) {
        if (typeof key === "symbol" || key in object || quiet.has(key)) return Reflect.get(object, key, receiver);
        throw new ReferenceError(missing(key));
      },
    });
  const among = (names) => (names.length ? `there is: ${names.join(", ")}` : "there is none");

  const tools = (functions, call) => {
    const servers = Object.create(null);
    for (const [server, name, tool] of functions) {
      const own = (servers[server] ??= Object.create(null));
      const run = async (input = {}) => {
        const json = JSON.stringify(input);
        if (json === undefined) throw new TypeError(`tools.${server}.${name} takes an object as its input`);
        return JSON.parse(await call(server, tool, json.toWellFormed()));
      };
      own[name] = Object.defineProperty(run, "name", { value: name });
      // Also under the name that its server gives it.
      if (!(tool in own)) Object.defineProperty(own, tool, { value: run, enumerable: false });
    }
    for (const server of Object.keys(servers)) {
      const own = servers[server];
      servers[server] = strict(own, (key) => `tools.${server} has no ${key}; ${among(Object.keys(own))}`);
    }
    return strict(servers, (key) => `no server ${key} in tools; ${among(Object.keys(servers))}`);
  };
  tools.apis = (clients) => strict(clients, (key) => `no api ${key} is declared; ${among(Object.keys(clients))}`);
  return tools;
}
