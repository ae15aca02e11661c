// expect: {"fast":"fast","slow":"Timed out after 5ms"}
function withTimeout<T>(p: Promise<T>, ms: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout>;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Timed out after ${ms}ms`)), ms);
  });
  return Promise.race([p, timeout]).finally(() => clearTimeout(timer));
}
const fast = await withTimeout(Promise.resolve("fast"), 50);
const slow = await withTimeout(new Promise((r) => setTimeout(() => r("slow"), 500)), 5).catch((e) => e.message);
return { fast, slow };
