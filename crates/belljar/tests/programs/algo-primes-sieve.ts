// expect: {"count":9592,"last":99991,"sum":454396537}
function sieve(limit: number): number[] {
  const composite = new Uint8Array(limit + 1);
  const primes: number[] = [];
  for (let i = 2; i <= limit; i++) {
    if (composite[i]) continue;
    primes.push(i);
    for (let j = i * i; j <= limit; j += i) composite[j] = 1;
  }
  return primes;
}
const primes = sieve(100_000);
({ count: primes.length, last: primes.at(-1), sum: primes.reduce((a, b) => a + b, 0) });
