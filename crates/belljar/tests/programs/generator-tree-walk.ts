// expect: [1,2,3,4]
// stdout: 1
// stdout:   2
// stdout:     4
// stdout:   3
interface Tree { value: number; children?: Tree[] }
const tree: Tree = { value: 1, children: [{ value: 2, children: [{ value: 4 }] }, { value: 3 }] };
function* dfs(t: Tree, depth = 0): Generator<[number, number]> {
  yield [t.value, depth];
  for (const c of t.children ?? []) yield* dfs(c, depth + 1);
}
function* bfs(t: Tree) { const q = [t]; while (q.length) { const n = q.shift()!; yield n.value; q.push(...(n.children ?? [])); } }
for (const [v, d] of dfs(tree)) console.log("  ".repeat(d) + v);
[...bfs(tree)];
