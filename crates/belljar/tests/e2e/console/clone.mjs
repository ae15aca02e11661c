// The commits of a box with a private clone, two people at one terminal, a connection that breaks, and a program
// without a terminal.
import { execFileSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { call, finish, inspect, start, watched } from "./lib.mjs";

const repository = mkdtempSync(join(process.env.HOME, "repository-"));
const git = (...words) => execFileSync("git", ["-C", repository, ...words]).toString();
git("init", "-q", "-b", "main");
git("config", "user.name", "Ada");
git("config", "user.email", "ada@example.com");
writeFileSync(join(repository, "list.txt"), Array.from({ length: 3000 }, (_, line) => `line ${line}\n`).join(""));
git("add", "-A");
git("commit", "-qm", "start");

const { browser, context, page, base } = await start();
const sockets = [];
await page.routeWebSocket(/\/screen/, (socket) => { sockets.push(socket); socket.connectToServer(); });
const connected = (tab) => tab.getByText("Connected", { exact: true }).waitFor();
const type = async (tab, line, shown) => {
  await tab.locator("#screen .in").click();
  await tab.keyboard.type(line);
  await tab.keyboard.press("Enter");
  await tab.locator(".xterm-rows").getByText(shown, { exact: true }).first().waitFor();
};

await page.goto(`${base}/new/box`);
await page.getByLabel("Name", { exact: true }).fill("fork-of-list");
await page.getByLabel("Program", { exact: true }).fill("/bin/sh\n-i");
await page.getByLabel("Or a private clone of a repository").fill(repository);
await page.getByRole("button", { name: "Create the box" }).click();
await page.waitForURL(`${base}/boxes/fork-of-list`);
await connected(page);

// The connection breaks and is made again.
await sockets[0].close({ code: 1001, reason: "the server stops; connect again" });
await page.getByText("Connecting again …").waitFor();
await connected(page);
await type(page, "echo again-$((1 + 1))", "again-2");

// A second client takes the keyboard, and the first one takes it back.
const other = await watched(context);
await other.goto(`${base}/boxes/fork-of-list`);
await connected(other);
await type(other, "echo other-$((2 + 2))", "other-4");
await page.getByRole("button", { name: "Another client types. Take the keyboard" }).click();
await other.getByRole("button", { name: "Another client types. Take the keyboard" }).waitFor();
await type(page, "sed -i s/line/row/ list.txt; echo 'echo hi' > run.sh; chmod +x run.sh", "$");
await type(page, "git add -A; git commit -qm 'rows <b>'; echo done-$((3 + 3))", "done-6");
await other.close();

// A branch has all files, so the marked one must be chosen. A long change is on a page of its own.
await page.getByRole("button", { name: "Stop" }).click();
await page.getByRole("region", { name: "Log of fork-of-list" }).waitFor();
await page.goto(`${base}/boxes/fork-of-list/review`);
const [all] = await Promise.all([context.waitForEvent("page"), page.getByRole("link", { name: "Open all lines" }).click()]);
await all.waitForLoadState();
const rows = await all.locator("tr.add").count();
await inspect(page, "review-clone");
await all.close();
await page.getByLabel("Take run.sh although it is marked").check();
await page.getByLabel("Branch for the commits").fill("rows");
await page.getByRole("button", { name: "Apply to a branch" }).click();
await page.getByText("Applied: 2").waitFor();
const subject = git("log", "-1", "--format=%s", "rows").trim();

// A program without a terminal shows its log while it runs, with nothing that a terminal would obey.
const program = ["/bin/sh", "-c", "printf 'a\\033[2J<script>alert(1)</script>\\342\\200\\256b\\n'; sleep 600"];
await call(page, "POST", "/v1/boxes", { name: "quiet", terminal: false, program });
await page.goto(`${base}/boxes/quiet`);
const log = page.getByRole("region", { name: "Log of quiet" });
await log.waitFor();
await inspect(page, "box-log");
const text = await log.textContent();
const removed = [];
for (const name of ["quiet", "fork-of-list"]) {
  const answer = await call(page, "DELETE", `/v1/boxes/${name}?discard_work=true`);
  removed.push(answer.status);
}
await finish(browser, { sockets: sockets.length > 1, rows, subject, text, removed });
