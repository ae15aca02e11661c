// error: SyntaxError
const res = await fetch("https://api.shop.test/broken");
const data = await res.json();
console.log(data.items.length);
