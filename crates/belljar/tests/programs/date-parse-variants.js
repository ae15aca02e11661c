// expect: ["2026-01-15T00:00:00.000Z","2026-01-15T12:30:00.000Z","2026-01-15T10:30:00.000Z","2026-01-15T12:30:00.000Z",null,null]
const inputs = ["2026-01-15", "2026-01-15T12:30:00Z", "2026-01-15T12:30:00+02:00", "Thu, 15 Jan 2026 12:30:00 GMT", "15/01/2026", ""];
inputs.map((s) => {
  const t = Date.parse(s);
  return Number.isNaN(t) ? null : new Date(t).toISOString();
});
