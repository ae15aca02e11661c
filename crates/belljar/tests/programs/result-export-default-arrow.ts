// input: {"n":5}
// expect: {"n":5,"factorial":"120"}
const factorial = (n: number): bigint => (n <= 1 ? 1n : BigInt(n) * factorial(n - 1));

export default async ({ n }: { n: number }) => ({ n, factorial: factorial(n) });
