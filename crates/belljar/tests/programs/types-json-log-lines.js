// expect: [{"level":"info","n":2,"avg":10},{"level":"error","n":1,"avg":250}]
// stderr: skipped lines: 2
const lines = ['{"level":"info","ms":12}', "garbage", '{"level":"error","ms":250}', "", '{"level":"info","ms":8}'];
const parsed = [], bad = [];
for (const [i, line] of lines.entries()) {
  if (!line) continue;
  try { parsed.push(JSON.parse(line)); } catch { bad.push(i + 1); }
}
const stats = Object.entries(Object.groupBy(parsed, (p) => p.level)).map(([level, ps]) => ({ level, n: ps.length, avg: ps.reduce((s, p) => s + p.ms, 0) / ps.length }));
console.error(`skipped lines: ${bad}`);
stats;
