import fs from "node:fs";
import path from "node:path";

const limit = Math.min(input.limit ?? 100, 2000);
const base = path.resolve("/workspace", input.path ?? ".");
if (!fs.existsSync(base)) throw new TypeError(`${base} does not exist`);
const pattern = new RegExp(input.pattern);
const files = fs.statSync(base).isDirectory()
  ? fs.globSync(input.glob ?? "**/*", { cwd: base }).map((name) => path.join(base, name))
  : [base];
files.sort();
const matches = [];
let truncated = false;
search: for (const file of files) {
  if (!fs.statSync(file, { throwIfNoEntry: false })?.isFile()) continue;
  const text = fs.readFileSync(file, "utf8");
  if (text.includes("\0")) continue;
  for (const [index, line] of text.split("\n").entries()) {
    if (!pattern.test(line)) continue;
    if (matches.length >= limit) {
      truncated = true;
      break search;
    }
    matches.push({ file: path.relative("/workspace", file), line: index + 1, text: line.slice(0, 500) });
  }
}
export default { matches, truncated };
