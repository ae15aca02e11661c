// expect: {"outcome":"AbortError","timed":"TimeoutError"}
const controller = new AbortController();
const timer = setTimeout(() => controller.abort(), 100);
let outcome: string;
try {
  const res = await fetch("https://api.shop.test/slow", { signal: controller.signal });
  await res.json();
  outcome = "finished";
} catch (e) {
  outcome = (e as Error).name;
} finally {
  clearTimeout(timer);
}
const timed = await fetch("https://api.shop.test/slow", { signal: AbortSignal.timeout(50) })
  .then((r) => r.text())
  .catch((e) => e.name);
({ outcome, timed });
