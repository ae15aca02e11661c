// expect: {"status":"found","v":9}
const values: number[] = [3, 9, 27];
if (values.length === 0) {
  return { status: "empty" };
}
for (const v of values) {
  if (v > 5) return { status: "found", v };
}
return { status: "none" };
