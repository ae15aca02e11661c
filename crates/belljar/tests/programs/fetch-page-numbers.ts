// expect: {"count":47,"first":1,"last":47,"total":1041.89}
interface Page { items: { id: number; price: number }[]; page: number; total_pages: number }

async function fetchAll(): Promise<Page["items"]> {
  const all: Page["items"] = [];
  let page = 1;
  let totalPages = 1;
  do {
    const res = await fetch(`https://api.shop.test/products?page=${page}&per_page=20`);
    const body: Page = await res.json();
    all.push(...body.items);
    totalPages = body.total_pages;
    page++;
  } while (page <= totalPages);
  return all;
}
const items = await fetchAll();
return { count: items.length, first: items[0].id, last: items.at(-1)!.id, total: Number(items.reduce((s, i) => s + i.price, 0).toFixed(2)) };
