// expect: {"name":"y","missing":"no nope","has":[false,true],"keys":["name"],"err":"strings only","log":["get name","get nope"]}
const log = [];
const target = { secret: 1, name: "x" };
const proxy = new Proxy(target, {
  get(t, k, r) { log.push(`get ${String(k)}`); return k in t ? Reflect.get(t, k, r) : `no ${String(k)}`; },
  set(t, k, v) { if (typeof v !== "string") throw new TypeError("strings only"); t[k] = v; return true; },
  has: (t, k) => !k.startsWith("s") && k in t,
  ownKeys: (t) => Reflect.ownKeys(t).filter((k) => k !== "secret"),
  deleteProperty: () => false,
});
proxy.name = "y";
let err;
try { proxy.age = 3; } catch (e) { err = e.message; }
({ name: proxy.name, missing: proxy.nope, has: ["secret" in proxy, "name" in proxy], keys: Object.keys(proxy), err, log });
