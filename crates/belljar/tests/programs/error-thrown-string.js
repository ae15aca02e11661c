// error: Error at 5
// message: "Invalid value: x"
const input2 = [1, 2, "x"];
for (const v of input2) {
  if (typeof v !== "number") throw new Error(`Invalid value: ${v}`);
}
