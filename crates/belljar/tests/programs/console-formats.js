// stdout: Bob is 42.5 years and 42, 1.5, {"a":1} [ 1, [length]: 1 ] %
// stdout: no format 1 true null undefined 10n Symbol(s)
// stdout: [ 1, 'two', [ 3, [ 4 ] ] ] { a: { b: { c: 1 } } }
// stdout: Map(1) { 'k' => { v: 1 } } Set(2) { 1, 'a' }
// stdout: [ undefined, null, -0, NaN ] [ <1 empty item>, 1 ] [Function: foo] [class Bar] [Function (anonymous)]
// stdout: {
// stdout:   f: [Function: f],
// stdout:   g: [AsyncFunction: g],
// stdout:   date: 1970-01-01T00:00:00.000Z,
// stdout:   re: /x/gi,
// stdout:   'quoted-key': 1,
// stdout:   nested: []
// stdout: }
// stdout: shown [ Invalid Date ] [ "it's", 'say "hi"', 'new\nline' ]
console.log("%s is %d years and %i, %f, %j %o %%", "Bob", 42.5, 42.9, "1.5", { a: 1 }, [1]);
console.log("no format", 1, true, null, undefined, 10n, Symbol("s"));
console.log([1, "two", [3, [4]]], { a: { b: { c: 1 } } });
console.log(new Map([["k", { v: 1 }]]), new Set([1, "a"]));
console.log([undefined, null, -0, NaN], [, 1], function foo() {}, class Bar {}, () => {});
console.log({ f() {}, g: async () => {}, date: new Date(0), re: /x/gi, "quoted-key": 1, nested: [] });
console.log(new Error("shown").message, [new Date(NaN)], ["it's", 'say "hi"', "new\nline"]);
