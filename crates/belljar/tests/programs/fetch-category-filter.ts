// expect: [{"category":"tools","total":15,"cheapest":"Product 39"},{"category":"garden","total":16,"cheapest":"Product 37"},{"category":"kitchen","total":16,"cheapest":"Product 38"}]
const categories = ["tools", "garden", "kitchen"] as const;
const results = await Promise.allSettled(
  categories.map(async (category) => {
    const params = new URLSearchParams({ category, per_page: "20" });
    const res = await fetch(`https://api.shop.test/products?${params}`);
    const { items, total } = await res.json();
    const cheapest = items.toSorted((a: any, b: any) => a.price - b.price)[0];
    return { category, total, cheapest: cheapest.name };
  }),
);
results.map((r) => (r.status === "fulfilled" ? r.value : null));
