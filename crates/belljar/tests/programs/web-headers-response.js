// expect: {"entries":[["a","1, 3"],["b","2"]],"has":true,"status":201,"ok":true,"x":"yes","body":{"ok":1},"jt":"application/json","bad":"TypeError"}
const h = new Headers([["B", "2"], ["a", "1"]]);
h.append("a", "3");
const r = new Response(JSON.stringify({ ok: 1 }), { status: 201, headers: { "x-test": "yes" } });
const j = Response.json({ n: 2 });
let bad;
try { new Headers({ "bad name": "x" }); } catch (e) { bad = e.name; }
({ entries: [...h], has: h.has("A"), status: r.status, ok: r.ok, x: r.headers.get("X-Test"), body: await r.json(), jt: j.headers.get("content-type"), bad });
