// expect: {"put":"Renamed","patch":["Product 3",100],"del":204,"empty":""}
const base = "https://api.shop.test/products/3";
const send = (method: string, body?: object) =>
  fetch(base, { method, body: body && JSON.stringify(body), headers: { "content-type": "application/json" } });

const put = await (await send("PUT", { name: "Renamed", price: 1 })).json();
const patch = await (await send("PATCH", { stock: 100 })).json();
const del = await send("DELETE");
({ put: put.name, patch: [patch.name, patch.stock], del: del.status, empty: await del.text() });
