// expect: {"done.md":{"open":0,"closed":1},"todo.md":{"open":2,"closed":1}}
import { readFile, writeFile, readdir, mkdir } from "node:fs/promises";
// Files in /workspace stay for the next call; work in a folder of our own
const dir = "/workspace/notes-program";
await mkdir(dir, { recursive: true });
for (const [name, text] of Object.entries({ todo: "- [x] one\n- [ ] two\n- [ ] three", done: "- [x] all" })) {
  await writeFile(`${dir}/${name}.md`, text);
}
const report: Record<string, { open: number; closed: number }> = {};
for (const file of (await readdir(dir)).filter((f) => f.endsWith(".md")).sort()) {
  const text = await readFile(`${dir}/${file}`, "utf8");
  report[file] = { open: (text.match(/\[ \]/g) ?? []).length, closed: (text.match(/\[x\]/g) ?? []).length };
}
report;
