// expect: 20
// stdout: Bolt, large / Nut / Screw "M4"
const text = await (await fetch("https://api.shop.test/csv")).text();
const [header, ...lines] = text.trim().split("\n");
const split = (l: string) => [...l.matchAll(/("([^"]|"")*"|[^,]*)(,|$)/g)].map((m) => m[1].replace(/^"|"$/g, "").replace(/""/g, '"')).slice(0, header.split(",").length);
const rows = lines.map(split).map(([id, name, qty, price]) => ({ id: +id, name, value: +(Number(qty) * Number(price)).toFixed(2) }));
console.log(rows.map((r) => r.name).join(" / "));
rows.reduce((s, r) => s + r.value, 0);
