// Prints the lines of files that match a regular expression, as `path:line:text`.
import { readdirSync, readFileSync, statSync } from "node:fs";

const MAX_LINES = 2000; // of the result
const MAX_FILE = 4 << 20; // larger files are skipped
const MAX_TEXT = 400; // of a line

const pattern = new RegExp(input.pattern, input.ignore_case ? "iu" : "u");
const root = input.path.replace(/\/+$/, "") || "/";
let found = 0;
let skipped = 0;

function search(path) {
  let text;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    return;
  }
  if (text.includes("\0")) return;
  const shown = path.startsWith("/workspace/") ? path.slice("/workspace/".length) : path;
  text.split("\n").forEach((line, at) => {
    if (found < MAX_LINES && pattern.test(line)) {
      found += 1;
      console.log(`${shown}:${at + 1}:${line.slice(0, MAX_TEXT)}`);
    }
  });
}

function walk(path) {
  if (found >= MAX_LINES) return;
  let entries;
  try {
    entries = readdirSync(path, { withFileTypes: true });
  } catch {
    return;
  }
  entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const entry of entries) {
    const below = `${path === "/" ? "" : path}/${entry.name}`;
    if (entry.isDirectory()) {
      if (entry.name !== ".git") walk(below);
    } else if (entry.isFile()) {
      if (statSync(below).size <= MAX_FILE) search(below);
      else skipped += 1;
    }
  }
}

if (statSync(root).isFile()) search(root);
else walk(root);
if (found >= MAX_LINES) console.log(`[belljar: only the first ${MAX_LINES} lines are shown]`);
if (skipped > 0) console.log(`[belljar: ${skipped} files larger than ${MAX_FILE} bytes were skipped]`);
