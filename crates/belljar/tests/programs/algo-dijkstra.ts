// expect: {"cost":20,"path":["A","C","F","E"]}
type Graph = Record<string, Record<string, number>>;
const graph: Graph = { A: { B: 7, C: 9, F: 14 }, B: { C: 10, D: 15 }, C: { D: 11, F: 2 }, D: { E: 6 }, F: { E: 9 } };

function shortest(g: Graph, from: string, to: string) {
  const dist = new Map([[from, 0]]), prev = new Map<string, string>(), queue = new Set([from]);
  while (queue.size) {
    const u = [...queue].reduce((a, b) => (dist.get(a)! <= dist.get(b)! ? a : b));
    queue.delete(u);
    for (const [v, w] of Object.entries(g[u] ?? {})) {
      const d = dist.get(u)! + w;
      if (d < (dist.get(v) ?? Infinity)) { dist.set(v, d); prev.set(v, u); queue.add(v); }
    }
  }
  const path = [to];
  while (path[0] !== from) path.unshift(prev.get(path[0])!);
  return { cost: dist.get(to), path };
}
return shortest(graph, "A", "E");
