// expect: "ok on 3"
// stdout: ok on 3
// stderr: Attempt 1 failed (flaky), retrying in 1ms
// stderr: Attempt 2 failed (flaky), retrying in 2ms
async function retry<T>(fn: (attempt: number) => Promise<T>, { retries = 4, base = 1, factor = 2 } = {}): Promise<T> {
  let lastError: unknown;
  for (let attempt = 0; attempt <= retries; attempt++) {
    try {
      return await fn(attempt);
    } catch (error) {
      lastError = error;
      const delay = base * factor ** attempt;
      console.warn(`Attempt ${attempt + 1} failed (${(error as Error).message}), retrying in ${delay}ms`);
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }
  throw lastError;
}
const result = await retry(async (n) => {
  if (n < 2) throw new Error("flaky");
  return `ok on ${n + 1}`;
});
console.log(result);
result;
