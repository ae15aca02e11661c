// stdout: id,name,price,tags
// stdout: 1,"Widget ""A""",9.99,x;y
// stdout: 2,"Gadget, large",19.5,
const rows = [
  { id: 1, name: 'Widget "A"', price: 9.99, tags: ["x", "y"] },
  { id: 2, name: "Gadget, large", price: 19.5, tags: [] },
];
const escape = (v) => {
  const s = Array.isArray(v) ? v.join(";") : String(v);
  return /[",\n]/.test(s) ? `"${s.replaceAll('"', '""')}"` : s;
};
const headers = Object.keys(rows[0]);
const out = [headers.join(","), ...rows.map((r) => headers.map((h) => escape(r[h])).join(","))].join("\n");
console.log(out);
