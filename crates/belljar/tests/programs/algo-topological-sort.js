// expect: {"order":["config","db","log","app","web"],"cycle":"cycle at a"}
const deps = { app: ["db", "log"], db: ["config"], log: ["config"], config: [], web: ["app"] };
function topo(graph) {
  const done = new Set(), visiting = new Set(), out = [];
  const visit = (n) => {
    if (done.has(n)) return;
    if (visiting.has(n)) throw new Error(`cycle at ${n}`);
    visiting.add(n);
    graph[n].forEach(visit);
    visiting.delete(n);
    done.add(n);
    out.push(n);
  };
  Object.keys(graph).forEach(visit);
  return out;
}
let cycle;
try { topo({ a: ["b"], b: ["a"] }); } catch (e) { cycle = e.message; }
({ order: topo(deps), cycle });
