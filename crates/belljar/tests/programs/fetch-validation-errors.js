// expect: 2
// stderr: name is required
// stderr: price must be positive
const res = await fetch("https://api.shop.test/products", {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ price: -1 }),
});
if (res.status === 422) {
  const { errors } = await res.json();
  for (const e of errors) console.error(`${e.field} ${e.message}`);
  return errors.length;
}
return 0;
