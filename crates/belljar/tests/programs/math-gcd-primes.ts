// expect: {"gcd":12,"lcm":60,"factors":[2,2,2,3,3,5],"perfect":[true,true,false]}
const gcd = (a: number, b: number): number => (b ? gcd(b, a % b) : a);
const lcm = (...ns: number[]) => ns.reduce((a, b) => (a * b) / gcd(a, b));
const factors = (n: number): number[] => { const out: number[] = []; for (let p = 2; n > 1; p++) while (n % p === 0) { out.push(p); n /= p; } return out; };
const isPerfect = (n: number) => Array.from({ length: n - 1 }, (_, i) => i + 1).filter((d) => n % d === 0).reduce((a, b) => a + b, 0) === n;
return { gcd: gcd(84, 36), lcm: lcm(4, 6, 10), factors: factors(360), perfect: [6, 28, 30].map(isPerfect) };
