// expect: {"content":"hello world","bytes":11,"entries":[["x.txt",true]],"gone":true,"code":"ENOENT"}
const fs = require("fs");
fs.mkdirSync("/tmp/sync", { recursive: true });
fs.writeFileSync("/tmp/sync/x.txt", "hello");
fs.appendFileSync("/tmp/sync/x.txt", " world");
const content = fs.readFileSync("/tmp/sync/x.txt", "utf8");
const raw = fs.readFileSync("/tmp/sync/x.txt");
const entries = fs.readdirSync("/tmp/sync", { withFileTypes: true }).map((e) => [e.name, e.isFile()]);
fs.unlinkSync("/tmp/sync/x.txt");
let code;
try { fs.readFileSync("/tmp/sync/x.txt"); } catch (e) { code = e.code; }
({ content, bytes: raw.length, entries, gone: !fs.existsSync("/tmp/sync/x.txt"), code });
