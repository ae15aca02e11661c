// `belljar:fs`, also imported as `fs`: functions of Deno and Node, asynchronous and with the suffix Sync.
(load, native) => {
  "use strict";
  const files = load("internal:files");
  const { promises } = files;
  const both = { ...load("node:fs") };
  // A function without the suffix Sync returns a promise. With a callback it behaves as in Node.
  for (const [name, work] of Object.entries(promises)) {
    const called = both[name];
    if (typeof work === "function" && typeof called === "function") {
      both[name] = (...args) => (typeof args.at(-1) === "function" ? called(...args) : work(...args));
    }
  }
  const readText = (file) => files.readFileSync(file, "utf8");
  return {
    ...both,
    exists: async (file) => files.exists(file),
    readTextFile: async (file) => readText(file),
    readTextFileSync: readText,
    writeTextFile: async (file, text, options) => (options?.append ? files.appendFileSync : files.writeFileSync)(file, String(text)),
    writeTextFileSync: (file, text, options) => (options?.append ? files.appendFileSync : files.writeFileSync)(file, String(text)),
    readDir: async (directory) => files.readdirSync(directory, { withFileTypes: true }),
    remove: async (file, options) => files.rmSync(file, options),
    removeSync: files.rmSync,
    glob: async (pattern, options) => files.glob(pattern, options),
    globSync: files.glob,
    walk: files.walk,
    ensureDir: async (directory) => void files.mkdirSync(directory, { recursive: true }),
  };
}
