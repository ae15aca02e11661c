// expect: {"outcome":"user cancelled","aborted":true,"auto":true,"reason":"TimeoutError","any":true}
const controller = new AbortController();
const { signal } = controller;

function cancellable(ms: number, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => resolve("finished"), ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}
setTimeout(() => controller.abort(new Error("user cancelled")), 5);
const outcome = await cancellable(5000, signal).catch((e: Error) => e.message);
const auto = AbortSignal.timeout(1);
await new Promise((r) => setTimeout(r, 20));
({ outcome, aborted: signal.aborted, auto: auto.aborted, reason: auto.reason?.name, any: AbortSignal.any([signal]).aborted });
