// stdout: {
// stdout:   "name": "Test",
// stdout:   "nested": {
// stdout:     "list": [
// stdout:       2,
// stdout:       5,
// stdout:       -600,
// stdout:       true,
// stdout:       null,
// stdout:       "é\n"
// stdout:     ]
// stdout:   }
// stdout: }
// stdout: {"d":"1970-01-01T00:00:00.000Z","n":null,"nested":[null]}
const json = '{"name":"Test","nested":{"list":[1,2.5,-3e2,true,null,"\\u00e9\\n"]},"empty":{}}';
const parsed = JSON.parse(json, (key, value) => (typeof value === "number" ? value * 2 : value));
const text = JSON.stringify(parsed, (k, v) => (k === "empty" ? undefined : v), 2);
console.log(text);
console.log(JSON.stringify({ d: new Date(0), u: undefined, f() {}, n: NaN, s: Symbol("x"), nested: [undefined] }));
