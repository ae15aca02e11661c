// expect: {"name":"Lamp","price":19.95,"id":101}
// stdout: 201 true /products/101
const created = await fetch("https://api.shop.test/products", {
  method: "POST",
  headers: { "Content-Type": "application/json", Accept: "application/json" },
  body: JSON.stringify({ name: "Lamp", price: 19.95 }),
});
console.log(created.status, created.statusText !== undefined, created.headers.get("location"));
await created.json();
