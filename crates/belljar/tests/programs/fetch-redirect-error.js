// expect: ["TypeError","TypeError"]
const outcomes = [];
for (const [url, redirect] of [["https://api.shop.test/old", "error"], ["https://api.shop.test/loop", "follow"]]) {
  try {
    await fetch(url, { redirect });
    outcomes.push("ok");
  } catch (e) {
    outcomes.push(e.name);
  }
}
outcomes;
