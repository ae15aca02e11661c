// expect: {"alice":37.5,"bob":12.5,"carol":99.99}
// Group orders by customer and sum totals
interface Order { id: number; customer: string; total: number }

const orders: Order[] = [
  { id: 1, customer: "alice", total: 30 },
  { id: 2, customer: "bob", total: 12.5 },
  { id: 3, customer: "alice", total: 7.5 },
  { id: 4, customer: "carol", total: 99.99 },
];

const totals = orders.reduce<Record<string, number>>((acc, order) => {
  acc[order.customer] = (acc[order.customer] ?? 0) + order.total;
  return acc;
}, {});

return totals;
