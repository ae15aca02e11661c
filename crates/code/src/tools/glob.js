import fs from "node:fs";
import path from "node:path";

const limit = Math.min(input.limit ?? 200, 5000);
const base = path.resolve("/workspace", input.path ?? ".");
if (!fs.existsSync(base)) throw new TypeError(`${base} does not exist`);
const files = fs.globSync(input.pattern, { cwd: base });
files.sort();
export default { files: files.slice(0, limit), truncated: files.length > limit };
