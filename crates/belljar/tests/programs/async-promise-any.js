// expect: {"first":"winner","errors":{"name":"AggregateError","agg":true,"messages":["one","two"]}}
const fail = (ms, m) => new Promise((_, j) => setTimeout(() => j(new Error(m)), ms));
const ok = (ms, v) => new Promise((r) => setTimeout(r, ms, v));
const first = await Promise.any([fail(1, "x"), ok(10, "winner"), ok(50, "late")]);
let errors;
try {
  await Promise.any([fail(1, "one"), fail(2, "two")]);
} catch (e) {
  errors = { name: e.name, agg: e instanceof AggregateError, messages: e.errors.map((x) => x.message) };
}
({ first, errors });
