// stdout: {
// stdout:   id: 1,
// stdout:   name: 'A fairly long product name here',
// stdout:   description: 'Some text that makes it long',
// stdout:   tags: [ 'a', 'b' ]
// stdout: }
// stdout: 120 xxxxxxxxxxxxxxxxxxxx
// stdout: [ { id: 1, v: 'a' }, { id: 2, v: 'b' } ]
// stdout: { list: [ 1, 2, 3 ], map: Map(1) { 1 => 'a' }, nil: null }
// stdout: Point { x: 1, y: 2 } [ Point { x: 3, y: 4 } ]
// stdout: [Object: null prototype] {} Point { x: 5, y: 6 }
// stdout: <ref *1> { name: 'loop', self: [Circular *1] }
// stdout: Uint8Array(3) [ 1, 2, 3 ] <Buffer 68 69>
// stdout: Promise { 4 } [ true, false ] done
console.log({ id: 1, name: "A fairly long product name here", description: "Some text that makes it long", tags: ["a", "b"] });
console.log(Array.from({ length: 120 }, (_, i) => i).length, "x".repeat(20));
console.log([{ id: 1, v: "a" }, { id: 2, v: "b" }]);
console.log({ list: [1, 2, 3], map: new Map([[1, "a"]]), nil: null });
class Point { constructor(x, y) { this.x = x; this.y = y; } }
console.log(new Point(1, 2), [new Point(3, 4)]);
console.log(Object.create(null), new (class extends Point {})(5, 6));
const o = { name: "loop" };
o.self = o;
console.log(o);
console.log(new Uint8Array([1, 2, 3]), Buffer.from("hi"));
console.log(Promise.resolve(4), [true, false], "done");
