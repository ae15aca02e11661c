// Runs, plans, schedules and approvals: a person submits plans, answers their gates and pauses a schedule.
import { call, faults, finish, inspect, start, watched } from "./lib.mjs";

const { browser, context, page, base } = await start();
const check = (is, what) => { if (!is) faults.push(what); };
const hostile = "<img src=x onerror=alert(1)>";
const plan = (name, question) => `[run]
name = "${name}"
budget = { boxes = 2, time = "1h", money = "$5" }
input.notes = { text = "first ${hostile}\\nsecond \\u202e line", labels = ["untrusted"] }
[task.write]
do.command = ["sh", "-c", "echo '\\"><script>alert(1)</script>'; printf '\\\\033[2Jcleared'"]
[task.gate]
do = { approval = "${question}", deadline = "1h" }
data = ["input.notes", "write"]
[task.publish]
do = { command = ["cat"] }
data = ["gate"]
`;
const submit = async (text) => {
  await page.goto(`${base}/new/run`);
  await page.getByLabel("Plan, in TOML or JSON").fill(text);
  await page.getByRole("button", { name: "Submit" }).click();
  await page.waitForURL(/\/runs\/[0-9a-z]+$/);
  await page.getByText("waits for a person").first().waitFor();
};
const state = async (path) => (await call(page, "GET", `/v1${new URL(path, base).pathname}`)).body;

// Nothing yet.
await page.goto(`${base}/runs`);
await page.getByText("No run matches").waitFor();
await inspect(page, "runs-empty");
await page.goto(`${base}/approvals`);
await page.getByText("Nothing waits for an answer").waitFor();
await inspect(page, "approvals-empty");

// A plan is checked, corrected and submitted.
await page.goto(`${base}/runs`);
await page.getByRole("link", { name: "Submit a plan" }).click();
const text = page.getByLabel("Plan, in TOML or JSON");
await text.fill('[run]\nname = "x"\n[task.a]\ndo.command = 7\n');
await page.getByRole("button", { name: "Check" }).click();
await page.getByText("The plan is not valid.").waitFor();
await page.getByRole("table", { name: "Findings" }).getByRole("cell", { name: "4", exact: true }).waitFor();
await inspect(page, "plan-findings");
await text.fill(plan("release", `Send ${hostile} to \\u202emoc.live?`));
await page.getByRole("button", { name: "Check" }).click();
await page.getByText("The plan is valid.").waitFor();
check(!(await page.getByText("The plan is not valid.").isVisible()), "the findings of the earlier check are shown");
await inspect(page, "plan-valid");
await page.getByRole("button", { name: "Submit" }).click();
await page.waitForURL(/\/runs\/[0-9a-z]+$/);
const run = page.url();
await page.getByRole("heading", { name: "Gate: gate" }).waitFor();
for (const task of ["write", "gate", "publish"]) {
  await page.getByRole("region", { name: /^Plan as a graph/ }).getByRole("link", { name: task }).waitFor();
}
await inspect(page, "run-waiting");

// The gate is approved on its own page, and the page of the run follows.
const gate = await watched(context);
await gate.goto(`${base}/approvals`);
await inspect(gate, "approvals-open");
check((await gate.getByRole("button", { name: "Approve" }).count()) === 0, "the list has a button to approve");
await page.getByRole("link", { name: "Review and answer" }).click();
await page.getByText(`Send ${hostile} to \\u{202e}moc.live?`).first().waitFor();
await page.getByText("Hidden characters.").waitFor();
await page.getByText('"><script>alert(1)</script>').waitFor();
await page.getByText("\\x1b", { exact: true }).waitFor();
await inspect(page, "approval-open");
await gate.goto(run);
await gate.getByText("waits for a person").first().waitFor();
await page.getByRole("button", { name: "Approve once" }).click();
await page.getByText("This has an answer.").waitFor();
await inspect(page, "approval-approved");
await gate.getByText("succeeded").waitFor();
const done = await state(run);
check(done.state === "succeeded", `the run is ${done.state}`);
await inspect(gate, "run-succeeded");
await gate.getByRole("row").getByRole("link", { name: "write" }).click();
await gate.getByRole("heading", { name: "Task write" }).waitFor();
await gate.getByText("\\x1b", { exact: true }).first().waitFor();
await inspect(gate, "run-task");

// A part of the run is repeated, and its gate is denied by key.
await gate.getByRole("button", { name: "Rerun from" }).click();
await gate.getByLabel("First task").selectOption("gate");
await gate.getByRole("button", { name: "Start the new run" }).click();
await gate.waitForURL((url) => url.href.split("?")[0] !== run && url.pathname.startsWith("/runs/"));
const second = gate.url();
await gate.getByRole("link", { name: "Review and answer" }).click();
await gate.getByText("Who may answer").waitFor();
const question = gate.url();
// This tab hears of no event, so it shows the question when it has an answer.
const deaf = await context.newPage();
await deaf.route("**/v1/events", (route) => route.abort());
await deaf.addInitScript(() => { window.BroadcastChannel = class { postMessage() {} }; });
await deaf.goto(question);
await deaf.getByRole("button", { name: "Approve once" }).and(deaf.locator(":enabled")).waitFor();
await gate.getByRole("button", { name: "Deny" }).and(gate.locator(":enabled")).waitFor();
await gate.keyboard.press("Shift+D");
await gate.getByText("This has an answer.").waitFor();
await deaf.getByRole("button", { name: "Approve once" }).click();
await deaf.getByRole("alert").filter({ hasText: "the approval is over: denied" }).waitFor();
await deaf.close();
await gate.goto(second);
await gate.getByText("failed").first().waitFor();

// A run is cancelled.
await submit(plan("useless", "Go on?"));
await page.getByRole("button", { name: "Cancel run" }).click();
await page.getByRole("dialog").getByRole("button", { name: "Cancel the run" }).click();
await page.getByText("cancelled").first().waitFor();
let third = await state(page.url());
for (let round = 0; round < 300 && third.state === "waiting"; round += 1) {
  await page.waitForTimeout(100);
  third = await state(page.url());
}
await page.goto(`${base}/approvals?q=kind:gate`);
await page.getByRole("cell", { name: "denied" }).first().waitFor();
await inspect(page, "approvals-answered");

// A schedule is paused, resumed and started.
await page.goto(`${base}/runs`);
await page.getByRole("link", { name: "release" }).first().waitFor();
await inspect(page, "runs");
await page.getByRole("link", { name: "Schedules" }).click();
await page.getByRole("button", { name: "Pause nightly" }).click();
await page.getByRole("button", { name: "Resume nightly" }).waitFor();
const paused = (await call(page, "GET", "/v1/schedules/nightly")).body.state;
await inspect(page, "schedules");
await page.getByRole("button", { name: "Resume nightly" }).click();
await page.getByRole("button", { name: "Pause nightly" }).waitFor();
await page.getByRole("link", { name: "nightly" }).first().click();
await page.getByRole("heading", { name: "Schedule nightly" }).waitFor();
await inspect(page, "schedule");
await page.getByRole("button", { name: "Run now nightly" }).click();
await page.waitForURL(/\/runs\/[0-9a-z]+$/);
await page.getByText("succeeded").waitFor();
const images = await page.locator("main img").count();
await finish(browser, { cancelled: third.state, paused, images });
