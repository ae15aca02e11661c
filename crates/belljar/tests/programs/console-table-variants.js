// stdout: ┌─────────┬───┬───┐
// stdout: │ (index) │ 0 │ 1 │
// stdout: ├─────────┼───┼───┤
// stdout: │ 0       │ 1 │ 2 │
// stdout: │ 1       │ 3 │ 4 │
// stdout: └─────────┴───┴───┘
// stdout: ┌─────────┬───┬─────┬──────┐
// stdout: │ (index) │ a │ b   │ c    │
// stdout: ├─────────┼───┼─────┼──────┤
// stdout: │ 0       │ 1 │ 'x' │      │
// stdout: │ 1       │ 2 │     │ true │
// stdout: └─────────┴───┴─────┴──────┘
// stdout: ┌─────────┬───┐
// stdout: │ (index) │ b │
// stdout: ├─────────┼───┤
// stdout: │ 0       │ 2 │
// stdout: └─────────┴───┘
// stdout: ┌─────────┬───┐
// stdout: │ (index) │ v │
// stdout: ├─────────┼───┤
// stdout: │ r1      │ 1 │
// stdout: │ r2      │ 2 │
// stdout: └─────────┴───┘
// stdout: ┌─────────┬────────┐
// stdout: │ (index) │ Values │
// stdout: ├─────────┼────────┤
// stdout: │ 0       │ 'p'    │
// stdout: │ 1       │ 'q'    │
// stdout: └─────────┴────────┘
// stdout: not tabular
console.table([[1, 2], [3, 4]]);
console.table([{ a: 1, b: "x" }, { a: 2, c: true }]);
console.table([{ a: 1, b: 2 }], ["b"]);
console.table({ r1: { v: 1 }, r2: { v: 2 } });
console.table(["p", "q"]);
console.table("not tabular");
