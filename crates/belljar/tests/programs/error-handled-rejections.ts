// expect: ["SyntaxError","TypeError","RangeError","URIError","EvalError","RangeError","RangeError","TypeError","TypeError"]
const results: string[] = [];
const tasks = [
  () => JSON.parse("{bad"),
  () => (undefined as any).x,
  () => new Array(-1),
  () => decodeURIComponent("%"),
  () => { throw new EvalError("eval"); },
  () => BigInt(1.5),
  () => (1).toFixed(101),
  () => null!.foo,
  () => Symbol() + "",
];
for (const t of tasks) {
  try { t(); results.push("no error"); } catch (e: any) { results.push(e.constructor.name); }
}
results;
