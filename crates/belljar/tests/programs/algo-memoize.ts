// expect: {"value":23416728348467684,"calls":81}
function memoize<A extends unknown[], R>(fn: (...args: A) => R): ((...args: A) => R) & { calls: number } {
  const cache = new Map<string, R>();
  const wrapped = (...args: A): R => {
    const key = JSON.stringify(args);
    if (!cache.has(key)) { wrapped.calls++; cache.set(key, fn(...args)); }
    return cache.get(key)!;
  };
  wrapped.calls = 0;
  return wrapped;
}
const fib = memoize((n: number): number => (n < 2 ? n : fib(n - 1) + fib(n - 2)));
({ value: fib(80), calls: fib.calls });
