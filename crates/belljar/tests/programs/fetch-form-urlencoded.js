// expect: {"lang":"ü","q":"a b&c"}
const res = await fetch("https://api.shop.test/form", {
  method: "POST",
  body: new URLSearchParams({ q: "a b&c", lang: "ü" }),
});
await res.json();
