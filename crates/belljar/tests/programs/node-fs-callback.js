// expect: "CALLBACK STYLE"
// stdout: null callback style
const fs = require("node:fs");
const { promisify } = require("node:util");
fs.writeFileSync("/tmp/cb.txt", "callback style");
fs.readFile("/tmp/cb.txt", "utf8", (err, data) => {
  console.log(err, data);
});
const read = promisify(fs.readFile);
const text = await read("/tmp/cb.txt", "utf8");
await new Promise((r) => setTimeout(r, 20));
text.toUpperCase();
