// The global `Deno` with the functions that programs use most.
(load, native) => {
  "use strict";
  const fs = load("internal:files");
  const process = load("node:process");
  const { inspect } = load("internal:inspect");
  const named = (name) => ({ [name]: class extends Error { constructor(...args) { super(...args); this.name = name; } } })[name];
  const errors = {};
  for (const name of ["NotFound", "PermissionDenied", "AlreadyExists", "IsADirectory", "NotADirectory", "InvalidData", "NotSupported", "BadResource", "TimedOut", "Interrupted"]) errors[name] = named(name);
  const kinds = { ENOENT: "NotFound", EACCES: "PermissionDenied", EPERM: "PermissionDenied", EROFS: "PermissionDenied", EEXIST: "AlreadyExists", EISDIR: "IsADirectory", ENOTDIR: "NotADirectory" };
  const sync = (work) => (...args) => {
    try { return work(...args); } catch (error) {
      const kind = errors[kinds[error?.code]];
      throw kind ? Object.assign(new kind(error.message), { code: error.code }) : error;
    }
  };
  const both = (name, work) => ({ [name]: async (...args) => sync(work)(...args), [`${name}Sync`]: sync(work) });
  const info = (path, follow) => {
    const it = native.stat(fs.path(path), follow);
    const time = (ms) => new Date(ms);
    return { isFile: it.kind === "file", isDirectory: it.kind === "directory", isSymlink: it.kind === "symlink", size: it.size, mode: it.mode, mtime: time(it.mtimeMs), atime: time(it.atimeMs), birthtime: time(it.birthtimeMs), ino: it.ino, dev: it.dev, nlink: it.nlink, uid: it.uid, gid: it.gid };
  };
  const write = (path, data, options = {}) => native.writeFile(fs.path(path), fs.bytes(data), options.append === true, options.createNew === true);
  const entries = (path) => native.readDir(fs.path(path)).map(([name, kind]) => ({ name, isFile: kind === "file", isDirectory: kind === "directory", isSymlink: kind === "symlink" }));
  const stream = (error) => ({
    writeSync(data) { native.write(error, new TextDecoder().decode(data)); return data.length; },
    async write(data) { return this.writeSync(data); },
    isTerminal: () => false,
  });
  const missing = (name, instead) => () => { throw new Error(`Deno.${name} is not available here: ${instead}`); };

  return {
    errors, inspect,
    args: [],
    pid: 1,
    version: { deno: "2.0.0", v8: "none", typescript: "6.0.0" },
    build: { os: "linux", arch: "x86_64", target: "x86_64-unknown-linux-gnu", vendor: "unknown", env: "gnu" },
    env: {
      get: (name) => process.env[name],
      set: (name, value) => { process.env[name] = String(value); },
      has: (name) => name in process.env,
      delete: (name) => { delete process.env[name]; },
      toObject: () => ({ ...process.env }),
    },
    exit: (code) => process.exit(code),
    cwd: () => native.cwd(),
    chdir: (path) => native.chdir(fs.path(path)),
    hostname: () => "belljar",
    memoryUsage: () => process.memoryUsage(),
    stdout: stream(false), stderr: stream(true),
    ...both("readTextFile", (path) => fs.readFileSync(path, "utf8")),
    ...both("readFile", (path) => native.readFile(fs.path(path))),
    ...both("writeTextFile", (path, text, options) => write(path, String(text), options)),
    ...both("writeFile", write),
    ...both("mkdir", (path, options = {}) => native.mkdir(fs.path(path), options.recursive === true)),
    ...both("remove", (path, options = {}) => native.remove(fs.path(path), options.recursive === true)),
    ...both("rename", (from, to) => native.rename(fs.path(from), fs.path(to))),
    ...both("copyFile", (from, to) => native.copy(fs.path(from), fs.path(to))),
    ...both("stat", (path) => info(path, true)),
    ...both("lstat", (path) => info(path, false)),
    ...both("realPath", (path) => native.realPath(fs.path(path))),
    ...both("readLink", (path) => native.readLink(fs.path(path))),
    ...both("symlink", (target, path) => native.symlink(fs.path(target), fs.path(path))),
    ...both("makeTempDir", (options = {}) => fs.mkdtempSync(`${options.dir ?? "/tmp"}/${options.prefix ?? ""}`)),
    ...both("makeTempFile", (options = {}) => {
      const path = `${fs.mkdtempSync(`${options.dir ?? "/tmp"}/${options.prefix ?? ""}`)}/file${options.suffix ?? ""}`;
      write(path, "");
      return path;
    }),
    readDir: (path) => (async function* () { yield* sync(entries)(path); })(),
    readDirSync: sync(entries),
    Command: class { constructor() { missing("Command", "run programs with the tool run_command")(); } },
    serve: missing("serve", "nothing can be reached from outside"),
    connect: missing("connect", "use fetch"),
    open: missing("open", "use Deno.readTextFile and Deno.writeTextFile"),
    test: missing("test", "call the function yourself"),
  };
}
