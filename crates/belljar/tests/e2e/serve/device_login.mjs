// A program starts the login of a device, and a person permits it on the page that the program names. Prints one
// JSON object with the statuses of the program's requests for its token, and with what the page shows at the end.
import { createRequire } from "node:module";

const [modules, chromium, link, address] = process.argv.slice(2);
const { chromium: browserType } = createRequire(modules + "/")("playwright-core");
const post = (path, body) =>
  fetch(`http://${address}${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
const login = await (await post("/auth/device", { name: "laptop" })).json();
const poll = () => post("/auth/device/token", { device_code: login.device_code });
const before = (await poll()).status;

const browser = await browserType.launch({
  executablePath: chromium,
  args: [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
  ],
});
const page = await (await browser.newContext()).newPage();
await page.goto(link);
await page.getByRole("heading", { name: "Overview" }).waitFor();
await page.goto(login.verification_uri_complete);
await page.getByRole("button", { name: "Continue" }).click();
await page.getByText("The device laptop at 127.0.0.1").waitFor();
await page.getByRole("button", { name: "Permit" }).click();
await page.getByText("The device is logged in.").waitFor();
const shown = await page.getByRole("status").textContent();
await browser.close();

await new Promise((resolve) => setTimeout(resolve, login.interval * 1000));
const granted = await poll();
const { token } = await granted.json();
const me = await fetch(`http://${address}/v1/me`, { headers: { Authorization: `Bearer ${token}` } });
const { principal } = await me.json();
console.log(JSON.stringify({ before, shown, after: granted.status, principal }));
