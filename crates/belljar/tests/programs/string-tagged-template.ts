// expect: {"text":"SELECT * FROM users WHERE name = $1 AND age > $2","values":["O'Brien",30]}
// stdout: SELECT * FROM users WHERE name = $1 AND age > $2
// stdout: C:\new\table 2
function sql(strings: TemplateStringsArray, ...values: unknown[]) {
  return { text: strings.reduce((acc, s, i) => acc + (i ? `$${i}` : "") + s, ""), values };
}
const name = "O'Brien", age = 30;
const q = sql`SELECT * FROM users WHERE name = ${name} AND age > ${age}`;
console.log(q.text);
console.log(String.raw`C:\new\table ${1 + 1}`);
q;
