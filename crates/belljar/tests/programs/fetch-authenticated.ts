// expect: {"login":"ada","scopes":["read","write"]}
// stdout: 200
// The credential is added on the way; the program has none
const me = await fetch("https://api.shop.test/me");
console.log(me.status);
const { login, scopes } = await me.json();
return { login, scopes };
