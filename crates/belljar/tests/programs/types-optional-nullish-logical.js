// expect: {"f":"filled","n":5,"s":"","deep":1,"call":"called","chain":"short","del":true,"comma":2,"v":true,"exp":0.5,"in":true}
const o = { f: null, n: 0, s: "", deep: { fn: () => "called" } };
o.n ||= 5;
o.s ??= "default";
o.f ??= "filled";
o.deep &&= { ...o.deep, extra: 1 };
({ ...o, deep: o.deep.extra, call: o.deep.fn?.(), none: o.nope?.(), chain: o.a?.b.c.d ?? "short", del: delete o.n, comma: (1, 2), v: void 0 === undefined, exp: 2 ** -1, in: "s" in o });
