// expect: {"url":"https://api.shop.test/new?from=old","redirected":true,"body":{"moved":true,"query":{"from":"old"}},"manual":301,"loc":"/new?from=old","post":["POST","kept"],"see":["GET",""]}
const followed = await fetch("https://api.shop.test/old");
const manual = await fetch("https://api.shop.test/old", { redirect: "manual" });
const post = await fetch("https://api.shop.test/move/307", { method: "POST", body: "kept" });
const see = await fetch("https://api.shop.test/move/303", { method: "POST", body: "dropped" });
const a = await post.json(), b = await see.json();
({
  url: followed.url, redirected: followed.redirected, body: await followed.json(),
  manual: manual.status, loc: manual.headers.get("location"),
  post: [a.method, a.body], see: [b.method, b.body],
});
