// error: SyntaxError at 3
const a = 1;
const b = [1, 2;
console.log(a, b);
