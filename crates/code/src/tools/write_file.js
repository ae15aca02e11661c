import fs from "node:fs";
import path from "node:path";

const file = path.resolve("/workspace", input.path);
fs.mkdirSync(path.dirname(file), { recursive: true });
fs.writeFileSync(file, input.content);
export default `wrote ${file}, ${new TextEncoder().encode(input.content).length} bytes`;
