// oracle: hand: only a box has declared services
// expect: {"login":"ada","count":5,"name":"Product 6"}
const me = await apis.shop.get("/me");
const page = await apis.shop.get("/products", { query: { page: 2, per_page: 5 } });
({ login: me.login, count: page.items.length, name: page.items[0].name });
