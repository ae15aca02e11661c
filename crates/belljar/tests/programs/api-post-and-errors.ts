// oracle: hand: only a box has declared services
// expect: {"id":101,"status":404,"said":true,"deleted":true}
const made = await apis.shop.post("/products", { body: { name: "Lamp", price: 3 } });
let status = 0;
let said = false;
try {
  await apis.shop.get("/products/999");
} catch (error) {
  status = error.status;
  said = JSON.stringify(error.body ?? error.message).includes("no product 999");
}
const deleted = await apis.shop.delete("/products/3");
({ id: made.id, status, said, deleted: deleted == null || deleted === "" });
