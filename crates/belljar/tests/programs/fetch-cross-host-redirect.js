// expect: {"url":"https://cdn.shop.test/text","text":"grüße aus dem laden"}
const res = await fetch("https://api.shop.test/away");
({ url: res.url, text: (await res.text()).trim() });
