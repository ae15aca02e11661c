// One box from its form to its removal: its terminal, its log, a review with hostile names, a conflict, and the rest.
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { call, faults, finish, inspect, start } from "./lib.mjs";

const HOSTILE = "<img src=x onerror=alert(1)>";
const directory = mkdtempSync(join(process.env.HOME ?? tmpdir(), "work-"));
const host = (name) => join(directory, name);
writeFileSync(host("notes.txt"), "one\ntwo\nthree\n");

const { browser, page, base } = await start();
page.on("dialog", (dialog) => { faults.push(`a script of a box ran: ${dialog.message()}`); dialog.dismiss(); });
const button = (name) => page.getByRole("button", { name, exact: true });
const screen = page.locator(".xterm-rows");
const connected = () => page.getByText("Connected", { exact: true }).waitFor();
const type = async (line, shown) => {
  await page.locator("#screen .in").click();
  await page.keyboard.type(line);
  await page.keyboard.press("Enter");
  if (shown) await screen.getByText(shown, { exact: true }).first().waitFor();
};

// A new box by the form.
await page.getByRole("link", { name: "New box" }).click();
await page.getByLabel("Name", { exact: true }).fill("-");
await page.getByLabel("Program", { exact: true }).fill("/bin/sh\n-i");
await page.getByLabel("Directory").fill(directory);
await inspect(page, "new-box");
await page.getByLabel("Name", { exact: true }).fill("desk");
await page.getByLabel("Network", { exact: true }).selectOption("restricted");
await button("Create the box").click();
await page.waitForURL(`${base}/boxes/desk`);

// Its terminal. The output is not the text that was typed.
await connected();
await type("echo typed-$((40 + 2))", "typed-42");
await type(`echo '${HOSTILE}'; printf 'RLO \\342\\200\\256 end\\033]0;title\\007\\n'`);
await type(`mkdir -p sub; printf 'one\\n2 ${HOSTILE}\\033[2J\\nthree\\n' > notes.txt; echo deep > sub/deep.txt`);
await type(`echo 'export A=1' > .envrc; touch "$(printf 'x\\342\\200\\256${HOSTILE}"><script>.txt')"`);
await type("echo all-$((1 + 1))", "all-2");
await type(`curl -s -m 9 http://192.0.2.1/denied > /dev/null; echo asked-$((2 + 2))`, "asked-4");
await page.locator("#requests").getByText("192.0.2.1/denied", { exact: true }).waitFor();
const reversed = (await screen.textContent()).includes("\u202e");
await inspect(page, "box-running");
await page.locator("#screen .in").click();
await page.keyboard.press("F6");
const left = await page.evaluate(() => document.activeElement.textContent);

// Another client that types takes the keyboard, and a broken connection is made again.
await page.reload();
await connected();
await type("echo again-$((5 + 5))", "again-10");

// The changes of a running box can only be looked at.
await page.goto(`${base}/boxes/desk/review`);
await page.getByText("The box runs.").waitFor();
const disabled = await button("Apply the chosen files").isDisabled();

// The network.
await page.goto(`${base}/boxes/desk`);
await button("Change the network").click();
await page.getByLabel("Also deny").fill("https://bad.example.com/**");
await page.getByRole("dialog").getByRole("button", { name: "Change the network" }).click();
await page.locator("#network").getByText("bad.example.com").waitFor();
await button("Cut off now").click();
await page.locator("#network header").getByText("none").waitFor();
const cut = (await call(page, "GET", "/v1/boxes/desk")).body.rules.net;

// Pause, resume and stop. A stopped box shows its log.
await button("Pause").click();
await button("Resume").click();
await button("Pause").waitFor();
await button("Stop").click();
await page.getByRole("region", { name: "Log of desk" }).getByText("typed-42").waitFor();
await page.getByText("stopped").first().waitFor();
await inspect(page, "box-stopped");

// The review: marked files are left out, the others are applied.
await page.getByRole("link", { name: "Review changes" }).click();
const marked = page.getByLabel("Take .envrc although it is marked");
await marked.waitFor();
await inspect(page, "review");
const checked = await marked.isChecked();
const names = await page.locator(".files .cut").allTextContents();
const sign = await page.locator("tr.add td:last-child").first().textContent();
await button("Apply the chosen files").click();
await page.getByText("Applied:").waitFor();
const applied = {
  notes: readFileSync(host("notes.txt"), "latin1"), deep: existsSync(host("sub/deep.txt")), envrc: existsSync(host(".envrc")),
};
await inspect(page, "review-applied");
await page.getByRole("link", { name: "Read the changes again" }).click();
for (const box of await page.locator(".files input").all()) await box.uncheck();
await button("Apply the chosen files").click();
await page.getByText("Choose an item.").waitFor();
await page.getByRole("link", { name: ".envrc" }).focus();
await page.keyboard.press("x");
await button("Apply the chosen files").click();
await page.getByText("Applied:").waitFor();
const envrc = readFileSync(host(".envrc"), "utf8");

// A conflict, and the discard of all changes.
await page.goto(`${base}/boxes/desk`);
await button("Start").click();
await connected();
await type("echo of the box > notes.txt; echo done-$((3 + 3))", "done-6");
await button("Stop").click();
await page.getByRole("link", { name: "Review changes" }).waitFor();
writeFileSync(host("notes.txt"), "of the host\n");
await page.goto(`${base}/review`);
await inspect(page, "review-list");
await page.getByRole("link", { name: "Review desk" }).click();
await button("Apply the chosen files").click();
await page.getByText("the host changed").waitFor();
// The browser reports the refused request, as it should.
const refused = faults.splice(0).filter((fault) => !fault.endsWith("409 (Conflict)"));
faults.push(...refused);
const conflict = readFileSync(host("notes.txt"), "utf8");
await button("Discard all changes").click();
await button("Cancel").click();
await button("Discard all changes").click();
await inspect(page, "review-discard");
await page.getByRole("dialog").getByRole("button", { name: "Discard all changes" }).click();
await page.waitForURL(`${base}/boxes/desk`);
await page.goto(`${base}/review`);
await page.getByText("No changes wait for review").waitFor();
await inspect(page, "review-empty");

// Snapshot, fork, reset and removal.
await page.goto(`${base}/boxes/desk`);
await button("Snapshot").click();
await page.getByLabel("Tag").fill("first");
await inspect(page, "box-snapshot");
await button("Take the snapshot").click();
await page.locator("#snapshots").getByText("first").waitFor();
await page.reload();
await button("Fork").click();
await page.getByLabel("Name of the new box").fill("copy");
await page.getByLabel("Copy of").selectOption("first");
await button("Fork the box").click();
await page.waitForURL(`${base}/boxes/copy`);
await button("Reset").click();
const opened = page.waitForEvent("load");
await button("Reset the box").click();
await opened;
for (const name of ["copy", "desk"]) {
  await page.goto(`${base}/boxes/${name}`);
  await button("Remove").click();
  await button("Remove the box").click();
  await page.waitForURL(`${base}/boxes`);
}
const boxes = (await call(page, "GET", "/v1/boxes")).body.items.length;
await finish(browser, { left, reversed, disabled, cut, checked, names, sign, applied, envrc, conflict, boxes });
