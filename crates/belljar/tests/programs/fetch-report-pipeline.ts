// expect: [{"name":"Grace","orders":7,"revenue":910,"last":"2026-03-18"},{"name":"Ada","orders":6,"revenue":840,"last":"2026-03-21"},{"name":"Linus","orders":6,"revenue":720,"last":"2026-03-15"},{"name":"Margaret","orders":0,"revenue":0}]
// stdout: Grace        7    910.00 2026-03-18
// stdout: Ada          6    840.00 2026-03-21
// stdout: Linus        6    720.00 2026-03-15
// stdout: Margaret     0      0.00 undefined
// Fetch, join, aggregate, and write a report
import { writeFile } from "node:fs/promises";

interface User { id: number; name: string }
interface Order { id: number; user_id: number; status: string; total: number; created_at: string }

const [users, orders] = await Promise.all([
  fetch("https://api.shop.test/users").then((r) => r.json() as Promise<User[]>),
  fetch("https://api.shop.test/orders?limit=25").then((r) => r.json() as Promise<{ data: Order[] }>).then((b) => b.data),
]);
const report = users
  .map((u) => {
    const own = orders.filter((o) => o.user_id === u.id && o.status !== "cancelled");
    return { name: u.name, orders: own.length, revenue: own.reduce((s, o) => s + o.total, 0), last: own.map((o) => o.created_at).sort().at(-1)?.slice(0, 10) };
  })
  .sort((a, b) => b.revenue - a.revenue);
await writeFile("/tmp/report.json", JSON.stringify(report, null, 2));
for (const r of report) console.log(`${r.name.padEnd(10)} ${String(r.orders).padStart(3)} ${r.revenue.toFixed(2).padStart(9)} ${r.last}`);
report;
