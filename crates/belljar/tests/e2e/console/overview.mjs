// The first page and the list of boxes: empty, and with a box that another client starts while the page is open.
import { call, finish, inspect, start } from "./lib.mjs";

const { browser, page, base } = await start();
await page.getByText("Nothing waits for you").waitFor();
await inspect(page, "overview-empty");
const created = await call(page, "POST", "/v1/boxes", { name: "busy", program: ["/bin/sleep", "600"] });
// The page shows the box without being opened again.
await page.getByRole("link", { name: "busy" }).waitFor();
await inspect(page, "overview");
await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Boxes" }).first().click();
await page.getByRole("heading", { name: "Boxes" }).waitFor();
await page.getByLabel("Filter boxes").fill("state:stopped");
await page.keyboard.press("Enter");
await page.getByText("No box matches").waitFor();
await inspect(page, "boxes-empty");
await page.getByRole("link", { name: "Running" }).click();
await page.getByRole("link", { name: "busy" }).waitFor();
await inspect(page, "boxes");
await page.keyboard.press("g");
await page.keyboard.press("o");
await page.getByRole("heading", { name: "Overview" }).waitFor();
await page.getByRole("button", { name: "Log out" }).first().click();
await page.waitForURL(`${base}/login`);
const after = await page.goto(`${base}/boxes`);
await finish(browser, { created: created.status, after: new URL(after.url()).pathname });
