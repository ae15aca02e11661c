// error: TypeError at 11
type Item = { name: string; price?: { amount: number } };

const items: Item[] = [
  { name: "pen", price: { amount: 2 } },
  { name: "book" },
];

const total = items
  .map((item) => {
    const amount = item.price!.amount;
    return amount * 2;
  })
  .reduce((a, b) => a + b, 0);

console.log(total);
