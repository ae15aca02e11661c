// A person opens the login page of a server and logs in with the identity provider, by the links that the pages
// show. Prints who the server says that the person is.
import { createRequire } from "node:module";

const [modules, chromium, url] = process.argv.slice(2);
const { chromium: browserType } = createRequire(modules + "/")("playwright-core");
const browser = await browserType.launch({
  executablePath: chromium,
  args: [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
    `--host-resolver-rules=MAP ${new URL(url).hostname} 127.0.0.1`,
  ],
});
// The provider has no page for people: it logs in the account of this header.
const context = await browser.newContext({
  ignoreHTTPSErrors: true,
  extraHTTPHeaders: { "X-Account": "ada" },
});
const page = await context.newPage();
await page.goto(url);
await page.getByRole("link", { name: "Log in with your identity provider" }).click();
await page.getByRole("heading", { name: "Overview" }).waitFor();
const { principal, role, tenant } = await page.evaluate(async () => (await fetch("/v1/me")).json());
console.log(`${principal} ${role} ${tenant}`);
await browser.close();
