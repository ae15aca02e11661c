// expect: 4
// stdout: | a | b |
// stdout: | --- | --- |
// stdout: | 1 | x\|y |
// stdout: | 2 |  |
function toMarkdown<T extends Record<string, unknown>>(rows: T[], columns: (keyof T & string)[] = Object.keys(rows[0] ?? {}) as any): string {
  const head = `| ${columns.join(" | ")} |`;
  const rule = `| ${columns.map(() => "---").join(" | ")} |`;
  const body = rows.map((r) => `| ${columns.map((c) => String(r[c] ?? "").replace(/\|/g, "\\|")).join(" | ")} |`);
  return [head, rule, ...body].join("\n");
}
const md = toMarkdown([{ a: 1, b: "x|y" }, { a: 2, b: null }]);
console.log(md);
md.split("\n").length;
