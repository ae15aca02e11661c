// `node:fs`: synchronous functions, `promises`, and functions with callbacks.
(load, native) => {
  "use strict";
  const files = load("internal:files");
  const fs = { promises: files.promises, Stats: files.Stats, Dirent: files.Dirent, constants: files.promises.constants, existsSync: files.exists, globSync: files.glob };
  for (const name of Object.keys(files)) if (name.endsWith("Sync")) fs[name] = files[name];
  for (const [name, work] of Object.entries(files.promises)) {
    if (typeof work !== "function" || name === "glob") continue;
    fs[name] = (...args) => {
      const callback = args.pop();
      if (typeof callback !== "function") throw new TypeError(`fs.${name} takes a callback; use fs.${name}Sync or await fs.promises.${name}`);
      work(...args).then((value) => (name === "exists" ? callback(value) : callback(null, value)), (error) => callback(error));
    };
  }
  for (const name of ["createReadStream", "createWriteStream", "open", "openSync", "watch"]) {
    fs[name] = () => { throw new Error(`fs.${name} is not available here: use fs.readFileSync, fs.writeFileSync or fs.appendFileSync`); };
  }
  return fs;
}
