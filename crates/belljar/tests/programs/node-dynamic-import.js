// expect: ["dynamic",true]
const { join } = await import("node:path");
const { default: fs } = await import("node:fs/promises");
await fs.writeFile(join("/tmp", "dyn.txt"), "dynamic");
const missing = await import("node:nonexistent-module").then(() => "loaded", (e) => e instanceof Error);
[await fs.readFile("/tmp/dyn.txt", "utf8"), missing];
