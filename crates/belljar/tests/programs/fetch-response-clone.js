// expect: {"same":true,"again":"TypeError","used":true}
const res = await fetch("https://api.shop.test/users/2");
const copy = res.clone();
const a = await res.json();
const b = await copy.text();
let again;
try { await res.json(); } catch (e) { again = e.name; }
({ same: JSON.parse(b).name === a.name, again, used: res.bodyUsed });
