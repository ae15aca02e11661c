import fs from "node:fs";
import path from "node:path";

const file = path.resolve("/workspace", input.path);
let text = fs.readFileSync(file, "utf8");
input.edits.forEach(({ search, replace }, index) => {
  if (search === "") throw new TypeError(`edits[${index}].search is empty`);
  const first = text.indexOf(search);
  if (first < 0) throw new TypeError(`edits[${index}].search was not found in ${input.path}; nothing was changed`);
  if (text.indexOf(search, first + 1) >= 0) {
    throw new TypeError(`edits[${index}].search occurs more than once in ${input.path}; nothing was changed`);
  }
  text = text.slice(0, first) + replace + text.slice(first + search.length);
});
fs.writeFileSync(file, text);
export default `changed ${file} in ${input.edits.length} places`;
