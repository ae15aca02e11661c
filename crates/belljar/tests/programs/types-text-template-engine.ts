// stdout: Hi ADA!
// stdout: - Pen: 2
// stdout: - Ink: 7
// stdout:
const render = (tpl: string, data: Record<string, any>): string =>
  tpl
    .replace(/\{\{#each (\w+)\}\}([\s\S]*?)\{\{\/each\}\}/g, (_, key, inner) => data[key].map((item: any) => render(inner, { ...data, ...item })).join(""))
    .replace(/\{\{#if (\w+)\}\}([\s\S]*?)\{\{\/if\}\}/g, (_, key, inner) => (data[key] ? inner : ""))
    .replace(/\{\{(\w+)(?:\|(\w+))?\}\}/g, (_, key, f) => (f === "upper" ? String(data[key]).toUpperCase() : data[key] ?? ""));
const out = render("Hi {{name|upper}}!\n{{#each items}}- {{title}}: {{price}}\n{{/each}}{{#if vip}}VIP{{/if}}", { name: "ada", vip: false, items: [{ title: "Pen", price: 2 }, { title: "Ink", price: 7 }] });
console.log(out);
