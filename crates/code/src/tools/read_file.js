import fs from "node:fs";
import path from "node:path";

const MOST = 256 * 1024;
const file = path.resolve("/workspace", input.path);
const text = fs.readFileSync(file, "utf8");
if (text.includes("\0")) throw new TypeError(`${input.path} is not a text file`);
const lines = text.split("\n");
if (lines.at(-1) === "") lines.pop();
const from = (input.offset ?? 1) - 1;
const wanted = lines.slice(from, input.limit == null ? undefined : from + input.limit);
let content = wanted.join("\n") + (wanted.length > 0 ? "\n" : "");
let truncated = from + wanted.length < lines.length;
if (content.length > MOST) {
  content = content.slice(0, MOST);
  truncated = true;
}
export default { content, lines: lines.length, truncated };
