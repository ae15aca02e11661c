// expect: [{"s":"2026-01-01","year":2026,"week":1},{"s":"2026-12-31","year":2026,"week":53},{"s":"2027-01-01","year":2026,"week":53},{"s":"2021-01-03","year":2020,"week":53}]
function isoWeek(date: Date): { year: number; week: number } {
  const d = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()));
  const day = d.getUTCDay() || 7;
  d.setUTCDate(d.getUTCDate() + 4 - day);
  const yearStart = new Date(Date.UTC(d.getUTCFullYear(), 0, 1));
  const week = Math.ceil(((+d - +yearStart) / 86400000 + 1) / 7);
  return { year: d.getUTCFullYear(), week };
}
["2026-01-01", "2026-12-31", "2027-01-01", "2021-01-03"].map((s) => ({ s, ...isoWeek(new Date(s)) }));
