// stdout: Name        | Qty | Price
// stdout: ------------|-----|------
// stdout: Apple       |   3 |   1.2
// stdout: Dragonfruit |  10 |  4.75
const rows = [["Name", "Qty", "Price"], ["Apple", 3, 1.2], ["Dragonfruit", 10, 4.75]];
const widths = rows[0].map((_, c) => Math.max(...rows.map((r) => String(r[c]).length)));
const line = (r) => r.map((v, i) => (typeof v === "number" ? String(v).padStart(widths[i]) : String(v).padEnd(widths[i]))).join(" | ");
console.log(line(rows[0]));
console.log(widths.map((w) => "-".repeat(w)).join("-|-"));
for (const r of rows.slice(1)) console.log(line(r));
