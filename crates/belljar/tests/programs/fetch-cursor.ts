// expect: {"open":1200,"shipped":1280,"cancelled":1050,"paid":1120}
type Order = { id: number; status: string; total: number };

async function* orders(limit = 8): AsyncGenerator<Order> {
  let cursor: string | null = null;
  do {
    const url = new URL("https://api.shop.test/orders");
    url.searchParams.set("limit", String(limit));
    if (cursor) url.searchParams.set("cursor", cursor);
    const { data, next_cursor }: { data: Order[]; next_cursor: string | null } = await (await fetch(url)).json();
    yield* data;
    cursor = next_cursor;
  } while (cursor);
}

const byStatus: Record<string, number> = {};
for await (const order of orders()) {
  byStatus[order.status] = (byStatus[order.status] ?? 0) + order.total;
}
byStatus;
