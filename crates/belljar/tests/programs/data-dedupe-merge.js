// expect: {"merged":[{"id":1,"v":"new","extra":true},{"id":2,"v":"keep"},{"id":3,"v":"add"}],"unique":[3,1,2]}
// stdout: [
// stdout:   {
// stdout:     "id": 1,
// stdout:     "v": "new",
// stdout:     "extra": true
// stdout:   },
// stdout:   {
// stdout:     "id": 2,
// stdout:     "v": "keep"
// stdout:   },
// stdout:   {
// stdout:     "id": 3,
// stdout:     "v": "add"
// stdout:   }
// stdout: ]
const a = [{ id: 1, v: "old" }, { id: 2, v: "keep" }];
const b = [{ id: 1, v: "new", extra: true }, { id: 3, v: "add" }];
const merged = Object.values(
  [...a, ...b].reduce((acc, item) => ({ ...acc, [item.id]: { ...acc[item.id], ...item } }), {}),
);
const unique = [...new Set([3, 1, 3, 2, 1])];
console.log(JSON.stringify(merged, null, 2));
({ merged, unique });
