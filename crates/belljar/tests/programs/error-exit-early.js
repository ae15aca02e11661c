// stdout: working
// stdout: nothing to do
console.log("working");
const found = [1, 2, 3].find((x) => x > 5);
if (!found) {
  console.log("nothing to do");
  process.exit(0);
}
console.log("unreachable");
