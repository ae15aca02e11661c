// expect: {"title":"Shop","links":[{"url":"https://api.shop.test/p/1","text":"One"},{"url":"https://api.shop.test/p/2","text":"Two & more"}]}
const html = await fetch("https://api.shop.test/html").then((r) => r.text());
const links = [...html.matchAll(/<a\s+href=["']([^"']+)["'][^>]*>(.*?)<\/a>/gi)].map(([, href, text]) => ({
  url: new URL(href, "https://api.shop.test").href,
  text: text.replace(/&amp;/g, "&"),
}));
const title = html.match(/<title>(.*?)<\/title>/)?.[1];
return { title, links };
