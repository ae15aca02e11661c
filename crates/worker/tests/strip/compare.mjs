// Compares TypeScript sources with their stripped versions, using the TypeScript compiler.
// Reads [[source, stripped], …] from standard input.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const [modules, how] = process.argv.slice(2);
const ts = createRequire(`${modules}/`)("typescript");
const options = {
  target: ts.ScriptTarget.ESNext,
  module: ts.ModuleKind.ESNext,
  removeComments: true,
  isolatedModules: true,
};
const transpile = (text) =>
  ts.transpileModule(text, { compilerOptions: options, fileName: "main.ts" })
    .outputText.replace(/^export \{\};\n/m, "").replace(/^"use strict";\n/, "");
const empty = (node) => ts.isEmptyStatement(node) || ts.isSemicolonClassElement(node);
// Returns the syntax tree of a node as text, without layout and without redundant parentheses.
const shape = (node) => {
  if (ts.isParenthesizedExpression(node)) return shape(node.expression);
  const parts = [];
  ts.forEachChild(node, (child) => { if (!empty(child)) parts.push(shape(child)); });
  const text = parts.length ? "" : node.getText().replace(/\s+/g, " ");
  const flags = node.flags & ts.NodeFlags.BlockScoped;
  return `${ts.SyntaxKind[node.kind]}${node.operator ?? ""}${flags || ""}(${text}${parts.join(" ")})`;
};
const meaning = (text) => {
  const file = ts.createSourceFile("main.mjs", transpile(text), ts.ScriptTarget.ESNext, true);
  return file.statements.filter((it) => !empty(it)).map(shape).join("\n");
};
const load = async (text) => {
  const url = "data:text/javascript;base64," + Buffer.from(text).toString("base64");
  return JSON.stringify({ ...(await import(url)) });
};

let alike = 0;
for (const [source, stripped] of JSON.parse(readFileSync(0, "utf8"))) {
  let [expected, actual] = ["", ""];
  if (how === "same") [expected, actual] = [meaning(source), meaning(stripped)];
  if (how === "values") [expected, actual] = [await load(transpile(source)), await load(stripped)];
  if (how === "nothing") actual = stripped.replace(/\/\*[^]*?\*\/|\/\/.*|;/g, "").trim();
  if (expected !== actual) {
    console.log(`--- source\n${source}\n--- stripped\n${stripped}\n--- expected\n${expected}\n--- actual\n${actual}`);
    process.exitCode = 1;
    continue;
  }
  // The stripped text must also be valid JavaScript.
  if (how === "same") {
    const { diagnostics } = ts.transpileModule(stripped, {
      compilerOptions: { ...options, allowJs: true }, fileName: "main.mjs", reportDiagnostics: true,
    });
    if (diagnostics.length) {
      console.log(`--- stripped\n${stripped}\n--- invalid JavaScript`, diagnostics.map((d) => d.messageText));
      process.exitCode = 1;
      continue;
    }
  }
  alike += 1;
}
console.log(`${alike} alike`);
