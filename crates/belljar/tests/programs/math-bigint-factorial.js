// expect: {"f":"265252859812191058636308480000000","typeof":"bigint","cmp":true,"eq":true,"mix":["1","2","3"]}
// stdout: 33 790627n 10000000000000000 1n -3n
const factorial = (n) => { let r = 1n; for (let i = 2n; i <= n; i++) r *= i; return r; };
const f = factorial(30n);
console.log(f.toString().length, f % 1_000_007n, (2n ** 64n).toString(16), BigInt.asUintN(8, 257n), -7n / 2n);
({ f, typeof: typeof f, cmp: 2n > 1, eq: 2n == 2, mix: [3n, 1, 2n].sort((a, b) => (a < b ? -1 : 1)).map(String) });
