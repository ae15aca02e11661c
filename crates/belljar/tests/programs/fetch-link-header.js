// expect: {"requests":4,"count":47,"unique":47}
let url = "https://api.shop.test/products?per_page=15";
const ids = [];
let requests = 0;
while (url) {
  const res = await fetch(url);
  requests++;
  const { items } = await res.json();
  ids.push(...items.map((i) => i.id));
  const link = res.headers.get("link") ?? "";
  url = link.match(/<([^>]+)>;\s*rel="next"/)?.[1];
}
({ requests, count: ids.length, unique: new Set(ids).size });
