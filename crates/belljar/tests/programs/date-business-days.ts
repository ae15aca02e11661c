// expect: ["2026-12-30","2026-01-05"]
const holidays = new Set(["2026-12-25", "2026-12-28"]);
const isBusinessDay = (d: Date) => ![0, 6].includes(d.getUTCDay()) && !holidays.has(d.toISOString().split("T")[0]);

function addBusinessDays(start: string, n: number): string {
  const d = new Date(`${start}T00:00:00Z`);
  while (n > 0) {
    d.setUTCDate(d.getUTCDate() + 1);
    if (isBusinessDay(d)) n--;
  }
  return d.toISOString().split("T")[0];
}
return [addBusinessDays("2026-12-23", 3), addBusinessDays("2026-01-02", 1)];
