// expect: {"names":["a.json","b.txt"],"json":{"n":1},"lines":3,"size":21,"file":true,"dir":false,"after":["b.txt","d.json"],"missing":"ENOENT","exists":true}
import fs from "node:fs/promises";
import path from "node:path";

const dir = "/tmp/data/nested";
await fs.mkdir(dir, { recursive: true });
await fs.writeFile(path.join(dir, "a.json"), JSON.stringify({ n: 1 }));
await fs.writeFile(path.join(dir, "b.txt"), "line 1\nline 2\n");
await fs.appendFile(path.join(dir, "b.txt"), "line 3\n", "utf8");

const names = (await fs.readdir(dir)).sort();
const json = JSON.parse(await fs.readFile(path.join(dir, "a.json"), "utf-8"));
const text = await fs.readFile(path.join(dir, "b.txt"), { encoding: "utf8" });
const stat = await fs.stat(path.join(dir, "b.txt"));
await fs.rename(path.join(dir, "a.json"), path.join(dir, "c.json"));
await fs.copyFile(path.join(dir, "c.json"), path.join(dir, "d.json"));
await fs.unlink(path.join(dir, "c.json"));
const after = (await fs.readdir(dir)).sort();
const missing = await fs.readFile("/tmp/none").catch((e: any) => e.code);
const exists = await fs.access(dir).then(() => true, () => false);
await fs.rm("/tmp/data", { recursive: true });
return { names, json, lines: text.trim().split("\n").length, size: stat.size, file: stat.isFile(), dir: stat.isDirectory(), after, missing, exists };
