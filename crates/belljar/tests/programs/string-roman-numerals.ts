// expect: true
// stdout: ┌─────────┬──────┬─────────────┬──────┐
// stdout: │ (index) │ n    │ r           │ ok   │
// stdout: ├─────────┼──────┼─────────────┼──────┤
// stdout: │ 0       │ 4    │ 'IV'        │ true │
// stdout: │ 1       │ 9    │ 'IX'        │ true │
// stdout: │ 2       │ 14   │ 'XIV'       │ true │
// stdout: │ 3       │ 1994 │ 'MCMXCIV'   │ true │
// stdout: │ 4       │ 2026 │ 'MMXXVI'    │ true │
// stdout: │ 5       │ 3999 │ 'MMMCMXCIX' │ true │
// stdout: └─────────┴──────┴─────────────┴──────┘
const table: [number, string][] = [[1000, "M"], [900, "CM"], [500, "D"], [400, "CD"], [100, "C"], [90, "XC"], [50, "L"], [40, "XL"], [10, "X"], [9, "IX"], [5, "V"], [4, "IV"], [1, "I"]];
const toRoman = (n: number): string => table.reduce((s, [v, r]) => { while (n >= v) { s += r; n -= v; } return s; }, "");
const fromRoman = (s: string) => { let i = 0, n = 0; for (const [v, r] of table) while (s.startsWith(r, i)) { n += v; i += r.length; } return n; };
const checks = [4, 9, 14, 1994, 2026, 3999].map((n) => ({ n, r: toRoman(n), ok: fromRoman(toRoman(n)) === n }));
console.table(checks);
checks.every((c) => c.ok);
