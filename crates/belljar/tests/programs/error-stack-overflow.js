// expect: true
function depth(n) {
  return depth(n + 1) + 1;
}
let name;
try {
  depth(0);
} catch (e) {
  name = e.name;
}
["RangeError", "InternalError"].includes(name);
