// expect: {"ok":true,"attempts":3}
// stderr: 429 received, waiting 0s (attempt 1)
// stderr: 429 received, waiting 0s (attempt 2)
async function fetchWithRetry(url: string, max = 5): Promise<Response> {
  for (let attempt = 1; attempt <= max; attempt++) {
    const res = await fetch(url);
    if (res.status !== 429) return res;
    const wait = Number(res.headers.get("retry-after") ?? 1);
    console.warn(`429 received, waiting ${wait}s (attempt ${attempt})`);
    await new Promise((r) => setTimeout(r, wait * 1000));
  }
  throw new Error("rate limited");
}
const res = await fetchWithRetry("https://api.shop.test/limited/fetch-rate-limit");
await res.json();
