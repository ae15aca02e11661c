// stdout: default: 1
// stdout: x: 1
// stdout: x: 2
// stdout: x: 1
// stdout: { a: [Object] }
// stdout: [ 1, 2, 3 ]
// stdout:  styled
// stdout: a	b
console.count();
console.count("x");
console.count("x");
console.countReset("x");
console.count("x");
console.dir({ a: { b: { c: { d: {} } } } }, { depth: 0 });
console.dir([1, 2, 3]);
console.log("%c styled", "color: red");
console.log("a\tb");
