// expect: [{"path":"deps.a","kind":"changed","from":"1.0","to":"1.1"},{"path":"deps.b","kind":"removed","from":"2.0"},{"path":"deps.c","kind":"added","to":"3.0"},{"path":"ports.1","kind":"changed","from":443,"to":8443}]
type Change = { path: string; kind: "added" | "removed" | "changed"; from?: unknown; to?: unknown };
function* diff(a: any, b: any, path = ""): Generator<Change> {
  for (const key of new Set([...Object.keys(a ?? {}), ...Object.keys(b ?? {})])) {
    const p = path ? `${path}.${key}` : key;
    if (!(key in b)) yield { path: p, kind: "removed", from: a[key] };
    else if (!(key in a)) yield { path: p, kind: "added", to: b[key] };
    else if (typeof a[key] === "object" && typeof b[key] === "object") yield* diff(a[key], b[key], p);
    else if (a[key] !== b[key]) yield { path: p, kind: "changed", from: a[key], to: b[key] };
  }
}
const v1 = { name: "app", deps: { a: "1.0", b: "2.0" }, ports: [80, 443] };
const v2 = { name: "app", deps: { a: "1.1", c: "3.0" }, ports: [80, 8443] };
[...diff(v1, v2)];
