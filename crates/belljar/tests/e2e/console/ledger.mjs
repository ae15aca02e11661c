// The ledger: the proof of an event is checked in the browser, and one with a changed event is refused.
import { call, finish, inspect, start } from "./lib.mjs";

const { browser, page, base } = await start();
await call(page, "POST", "/v1/run", { command: ["/bin/echo", '<img src=x onerror=alert(1)>\u202e'] });
const verdict = page.locator("[data-verdict]");
// The newest event has no proof until the next checkpoint is signed.
const opened = async () => {
  for (let round = 0; round < 100; round += 1) {
    if (await verdict.count()) break;
    await page.waitForTimeout(200);
    await page.reload();
  }
  await verdict.filter({ hasNotText: "checking" }).waitFor();
  const text = await verdict.textContent();
  if (text !== "checked in this browser") throw new Error(`${page.url()}: ${text}`);
};
await page.goto(`${base}/ledger`);
await opened();
await page.getByLabel("Filter events").fill("kind:run.created");
await page.keyboard.press("Enter");
await page.getByRole("heading", { name: /^Event / }).waitFor();
await opened();
await inspect(page, "ledger");
await page.getByRole("button", { name: "Verify now" }).click();
await page.getByText(/^all \d+ events/).waitFor();
await inspect(page, "ledger-verified");

// A server that changes the event, the path or the checkpoint is found out.
const results = [];
const changes = {
  entry: (signed) => { signed.proof.entry = btoa(atob(signed.proof.entry).replace("run", "rum")); },
  path: (signed) => { signed.proof.proof[0] = "00".repeat(32); },
  size: (signed) => { signed.size += 1; },
  checkpoint: (signed) => { signed.proof.checkpoint = signed.proof.checkpoint.replace(/^belljar/, "belljan"); },
  none: () => {},
};
for (const [name, change] of Object.entries(changes)) {
  const signed = await page.evaluate(async () => (await fetch(document.querySelector("[data-proof]").dataset.proof)).json());
  change(signed);
  await page.route("**/proof", (route) => route.fulfill({ json: signed }));
  await page.reload();
  await page.waitForFunction(() => !document.querySelector("[data-verdict]").textContent.startsWith("checking"));
  results.push([name, (await verdict.getAttribute("class")).split(" ").pop()]);
  await page.unroute("**/proof");
}
await finish(browser, { results: Object.fromEntries(results) });
