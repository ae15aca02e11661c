// Helpers of the scripts that use the console in Chromium.
//
// usage of a script: node SCRIPT MODULES CHROMIUM LINK [SHOTS]
// A script prints one JSON object. Everything that a page does wrong is in `faults` of that object.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

export const [modules, chromium, link, shots] = process.argv.slice(2);
const require = createRequire(modules + "/");
const { chromium: browserType } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

/// The maximum length of a page after compression.
const MAX_PAGE = 40 * 1024;

export const faults = [];

/// Starts the browser and logs in with the link. Returns a page of the console.
export const start = async () => {
  const browser = await browserType.launch({
    executablePath: chromium,
    args: [
      "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync",
    ],
  });
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const page = await watched(context);
  await page.goto(link);
  await page.waitForURL(new URL("/", link).href);
  return { browser, context, page, base: new URL(link).origin };
};

/// Opens a tab whose faults are collected.
export const watched = async (context) => {
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.on("pageerror", (error) => faults.push(`${page.url()}: ${error.message}`));
  page.on("console", (message) => {
    // A violation of the content policy or of Trusted Types is an error of the browser's console.
    // A request without a session is refused on purpose.
    const isRefused = message.text().includes("401 (Unauthorized)");
    if (message.type() === "error" && !isRefused) faults.push(`${page.url()}: ${message.text()}`);
  });
  return page;
};

/// Sends a request to the API as the page does. Returns the status and the document.
export const call = (page, method, path, body) =>
  page.evaluate(
    async ([method, path, body]) => {
      const csrf = document.querySelector('meta[name="csrf"]').content;
      const headers = { "Content-Type": "application/json", "X-Belljar-Csrf": csrf };
      const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
      const text = await answer.text();
      return { status: answer.status, body: text.startsWith("{") ? JSON.parse(text) : text };
    },
    [method, path, body],
  );

/// Looks at the current page in light, in dark and on a phone: axe finds nothing, and nothing scrolls sideways.
export const inspect = async (page, name) => {
  const source = await page.evaluate(async () => (await fetch(location.href)).text());
  const length = gzipSync(source).length;
  if (length > MAX_PAGE) faults.push(`${name}: ${length} bytes`);
  const modes = [["light", 1280], ["dark", 1280], ["light", 390]];
  for (const [theme, width] of modes) {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
    await page.setViewportSize({ width, height: 800 });
    // The page learns of its new size with the next frame.
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    // The content policy of the page forbids scripts of others, so axe is added by the protocol of the browser.
    if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axe);
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    for (const { id, nodes } of violations) {
      faults.push(`${name} ${theme} ${width}: ${id}: ${nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`);
    }
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) faults.push(`${name} ${theme} ${width}: the page is ${wide} px too wide`);
    if (shots) await page.screenshot({ path: `${shots}/${name}-${width === 390 ? "phone" : theme}.png`, fullPage: true });
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1280, height: 800 });
};

/// Prints the result of the script and ends it.
export const finish = async (browser, result = {}) => {
  await browser.close();
  console.log(JSON.stringify({ ...result, faults }));
};
