// expect: {"restock":{"low":[{"name":"asparagus","type":"vegetables","quantity":9},{"name":"bananas","type":"fruit","quantity":5}],"ok":[{"name":"goat","type":"meat","quantity":23},{"name":"cherries","type":"fruit","quantity":12}]},"types":["vegetables","fruit","meat"],"fruit":["bananas","cherries"]}
const inventory = [
  { name: "asparagus", type: "vegetables", quantity: 9 },
  { name: "bananas", type: "fruit", quantity: 5 },
  { name: "goat", type: "meat", quantity: 23 },
  { name: "cherries", type: "fruit", quantity: 12 },
];
const restock = Object.groupBy(inventory, ({ quantity }) => (quantity < 10 ? "low" : "ok"));
const byType = Map.groupBy(inventory, (item) => item.type);
({ restock, types: [...byType.keys()], fruit: byType.get("fruit").map((i) => i.name) });
