// expect: [["a","1","b","22","c","333",""],[2026,1,5,10,20,30],["a","b"],"x|xxxx"]
// stdout: a|1|b|22|c|333| [ 2026, 1, 5, 10, 20, 30 ]
const parts = "a1b22c333".split(/(\d+)/);
const date = "2026-01-05T10:20:30".split(/[-T:]/).map(Number);
const limited = "a,b,c,d".split(",", 2);
const trimmed = "  x  ".trim() + "|" + "xx".replaceAll("x", "$&$&");
console.log(parts.join("|"), date);
[parts, date, limited, trimmed];
