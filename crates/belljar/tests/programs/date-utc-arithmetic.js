// expect: {"days":["2026-02-27","2026-02-28","2026-03-01","2026-03-02"],"diff":174,"leap":true}
const start = new Date("2026-02-27T10:00:00Z");
const days = Array.from({ length: 4 }, (_, i) => {
  const d = new Date(start);
  d.setUTCDate(d.getUTCDate() + i);
  return d.toISOString().slice(0, 10);
});
const diff = (Date.UTC(2026, 11, 25) - Date.UTC(2026, 6, 4)) / 86_400_000;
({ days, diff, leap: new Date(Date.UTC(2028, 1, 29)).getUTCDate() === 29 });
