// expect: {"login":"ada","scopes":["read","write"]}
// stdout: 200
// What stands for the credential is in the environment; the value never is
const me = await fetch("https://api.shop.test/me", {
  headers: { Authorization: `Bearer ${process.env.SHOP_TOKEN}` },
});
console.log(me.status);
const { login, scopes } = await me.json();
return { login, scopes };
