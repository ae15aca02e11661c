// expect: {"good":{"ok":true,"attempts":3},"bad":503}
const retryable = new Set([429, 500, 502, 503, 504]);
async function request(url, { retries = 4, baseMs = 1 } = {}) {
  for (let i = 0; ; i++) {
    const res = await fetch(url);
    if (!retryable.has(res.status) || i === retries) return res;
    await new Promise((r) => setTimeout(r, baseMs * 2 ** i));
  }
}
const good = await request("https://api.shop.test/flaky/2/backoff-a");
const bad = await request("https://api.shop.test/flaky/9/backoff-b", { retries: 1 });
({ good: await good.json(), bad: bad.status });
