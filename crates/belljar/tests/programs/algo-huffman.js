// expect: {"bits":23,"a":1,"total":5}
const text = "abracadabra";
let nodes = Object.entries([...text].reduce((m, c) => ({ ...m, [c]: (m[c] ?? 0) + 1 }), {})).map(([c, n]) => ({ c, n }));
while (nodes.length > 1) {
  nodes.sort((a, b) => a.n - b.n || (a.c ?? "~").localeCompare(b.c ?? "~"));
  const [l, r, ...rest] = nodes;
  nodes = [...rest, { n: l.n + r.n, l, r }];
}
const codes = {};
(function walk(n, code) { n.c ? (codes[n.c] = code || "0") : (walk(n.l, code + "0"), walk(n.r, code + "1")); })(nodes[0], "");
const bits = [...text].map((c) => codes[c]).join("");
({ bits: bits.length, a: codes.a.length, total: Object.keys(codes).length });
