// expect: ["just now","2 minutes ago","1 day ago","3 months ago","6 years ago"]
// stdout: just now
// stdout: 2 minutes ago
// stdout: 1 day ago
// stdout: 3 months ago
// stdout: 6 years ago
const now = Date.parse("2026-06-15T12:00:00Z");
function ago(iso: string): string {
  const seconds = Math.round((now - Date.parse(iso)) / 1000);
  const units: [string, number][] = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60]];
  for (const [name, size] of units) {
    const n = Math.floor(seconds / size);
    if (n >= 1) return `${n} ${name}${n > 1 ? "s" : ""} ago`;
  }
  return "just now";
}
const out = ["2026-06-15T11:59:30Z", "2026-06-15T11:58:00Z", "2026-06-14T12:00:00Z", "2026-03-01T00:00:00Z", "2020-01-01T00:00:00Z"].map(ago);
console.log(out.join("\n"));
out;
