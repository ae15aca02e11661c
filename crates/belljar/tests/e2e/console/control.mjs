// The owner of a tenant: a secret, the policy with its preview, a rule of a denied request, a person, a token,
// usage, webhooks and the state of the machine.
import { call, faults, finish, inspect, start } from "./lib.mjs";

const HOSTILE = '<img src=x onerror=alert(1)>"><script>alert(2)</script>\u202e\u001b[31m';
const { browser, page, base } = await start();
page.on("dialog", (dialog) => { faults.push(`${page.url()}: a dialog: ${dialog.message()}`); dialog.dismiss(); });
const open = (path) => page.goto(base + path);
const button = (name) => page.getByRole("button", { name, exact: true });
const result = {};

// Empty pages.
for (const name of ["requests", "policy", "people", "secrets", "usage", "webhooks", "doctor"]) {
  await open(`/${name}`);
  await inspect(page, `${name}-empty`);
}

// A secret: set, shown without its value, replaced, and removed.
await open("/secrets");
await page.getByLabel("Name", { exact: true }).fill("deploy-key");
await page.getByLabel("Value", { exact: true }).fill("not-to-be-seen-1");
await page.getByLabel("Hosts").fill("api.example.com *.hooks.example");
await button("Store the secret").click();
await page.getByText("*.hooks.example").waitFor();
await page.getByRole("button", { name: "Replace deploy-key" }).click();
await page.getByLabel("New value").fill("not-to-be-seen-2");
await button("Store the value").click();
await page.getByLabel("New value").waitFor({ state: "hidden" });
if ((await page.content()).includes("not-to-be-seen")) faults.push("the page has the value of a secret");
await inspect(page, "secrets");
result.secrets = (await call(page, "GET", "/v1/secrets")).body.items.filter((it) => it.is_set).map((it) => it.name);
await page.getByRole("button", { name: "Remove deploy-key" }).click();
await button("Remove the value").click();
await page.getByRole("button", { name: "Remove deploy-key" }).waitFor({ state: "detached" });

// The policy: a preview, an error of the text, and a first version.
const text = '[template.default]\nnet = "restricted"\n\n[[template.default.allow]]\nhost = "api.example.com"\npaths = ["/public/**"]\n'
  + '\n[[test]]\nrequest = "GET https://other.example/"\nexpect = "deny"\n';
await open("/policy");
await page.getByLabel("Text in TOML").fill("net = <b>");
await button("Preview").click();
await page.getByRole("alert").filter({ hasText: /./ }).first().waitFor();
await page.getByLabel("Text in TOML").fill(text);
await button("Preview").click();
await page.getByRole("cell", { name: "api.example.com" }).first().waitFor();
await page.getByText("All tests pass").waitFor();
await inspect(page, "policy-preview");
await button("Save as version 1").click();
await page.getByText("Version 1 by").waitFor();

// A real box whose request is denied, and the narrowest rule for it.
// A server of HTTP refuses characters such as `<` in a path, so that they come only as escapes.
const script = `curl -sS -m 20 https://api.example.com/v1/items/7?q=1
  curl -sS -m 20 --http1.1 'https://api.example.com/"onload=alert(3)%3Cimg%3E%E2%80%AE%1b'; sleep 600`;
const made = await call(page, "POST", "/v1/boxes", {
  name: "reach", program: ["/bin/bash", "-c", script],
});
result.box = made.status;
if (made.status !== 201) result.problem = made.body;
await open("/requests");
await page.getByText("/v1/items/7").first().waitFor();
await page.getByText("onload=alert(3)").first().waitFor();
await inspect(page, "requests");
await page.getByRole("link", { name: "Allowed" }).click();
await page.getByText("No request matches").waitFor();
await page.getByLabel("Filter requests").fill("verdict:deny box:reach host:example.com items");
await page.keyboard.press("Enter");
await page.getByRole("row").filter({ hasText: "/v1/items/7" }).getByRole("link").first().click();
await page.getByRole("heading", { name: "Why it was denied" }).waitFor();
await button("Decide again now").click();
await page.getByText("Verdict now").waitFor();
await button("Make a rule of this").click();
await page.getByText('paths = ["/v1/items/7"]').first().waitFor();
await page.getByRole("cell", { name: "GET https://api.example.com/v1/items/7", exact: true }).waitFor();
await inspect(page, "request-rule");
await button("Save as version 2").click();
await page.getByText("Version 2 by").waitFor();
const saved = (await call(page, "GET", "/v1/policy")).body;
result.saved = [saved.version, saved.policy.includes("/v1/items/7"), saved.policy.includes("[[test]]")];
// The request is not on the first page of this filter, but its address still shows it.
const denied = (await call(page, "GET", "/v1/requests?verdict=deny")).body.items.at(-1);
await open(`/requests?q=verdict:allow&event=${denied.index}`);
await page.getByRole("heading", { name: `Request ${denied.index}` }).waitFor();
await button("Decide again now").click();
await page.getByText("a rule allows it").waitFor();

// A proposal with a hostile reason, and its text with hidden characters; it is accepted.
await open("/policy");
await page.getByLabel("Text in TOML").fill(`${saved.policy}# ${HOSTILE.replace("\u001b", "")}\n`);
await page.getByLabel("Reason of a proposal").fill(HOSTILE);
await button("Propose").click();
await page.getByRole("heading", { name: /^Proposal/ }).first().waitFor();
await page.getByText("\\u{202e}").first().waitFor();
await button("Preview").click();
await page.getByText("All tests pass").waitFor();
await inspect(page, "proposal");
await button("Accept and save").click();
await page.getByText("Version 3 by").waitFor();
await inspect(page, "policy");
await page.getByRole("link", { name: "Version 1", exact: true }).click();
await page.getByText("Changes since version 1").waitFor();
await inspect(page, "policy-version");

// A person is invited, and a token is made and used.
await open("/people");
await button("Invite a person").click();
await page.getByRole("dialog").getByLabel("Name").fill("grace");
await page.getByRole("dialog").getByLabel("Role").selectOption("operator");
await button("Make the link").click();
await page.getByText(`${base}/login#`).waitFor();
await inspect(page, "people-invite");
const invitation = await page.locator("#invite [data-out=url]").textContent();
const guest = await browser.newContext();
const visitor = await guest.newPage();
await visitor.goto(invitation);
await visitor.waitForURL(`${base}/`);
await visitor.goto(`${base}/people`);
await visitor.getByText("Owners, administrators and auditors see the people").waitFor();
await visitor.goto(`${base}/policy`);
result.invited = [
  await visitor.getByRole("button", { name: "Save", exact: true }).isDisabled(),
  await visitor.getByRole("button", { name: "Propose", exact: true }).isDisabled(),
];
await open("/people");
await page.getByRole("button", { name: "Change grace" }).click();
await page.getByRole("dialog").getByLabel("Role").selectOption("auditor");
await button("Change the role").click();
await page.getByRole("dialog").waitFor({ state: "hidden" });
await page.getByRole("row").filter({ hasText: "grace" }).getByText("auditor").first().waitFor();
for (const name of ["requests", "policy", "people", "secrets", "usage", "webhooks", "doctor"]) {
  await visitor.goto(`${base}/${name}`);
  await inspect(visitor, `${name}-auditor`);
}
await button("New token").click();
const form = page.getByRole("dialog");
await form.getByLabel("Name").fill("ci");
await form.getByLabel(/^boxes:read/).check();
await form.getByLabel("Networks of its clients").fill("127.0.0.0/8 ::1/128");
await form.getByLabel("Boxes that may run at once").fill("2");
await button("Make the token").click();
await page.getByText("It is not shown again").last().waitFor();
await inspect(page, "people-token");
const token = await page.locator("#new-token [data-out=token]").textContent();
const program = await (await browser.newContext()).newPage();
await program.goto(`${base}/login`);
const asToken = (path) =>
  program.evaluate(
    async ([path, token]) => (await fetch(path, { headers: { Authorization: `Bearer ${token}` } })).status,
    [path, token],
  );
result.token = [await asToken("/v1/boxes"), await asToken("/v1/policy")];
await open("/people");
await page.getByRole("button", { name: "Revoke ci" }).click();
await button("Revoke the token").click();
await page.getByRole("button", { name: "Revoke ci" }).waitFor({ state: "detached" });
result.token.push(await asToken("/v1/boxes"));
await page.getByRole("button", { name: "Change grace" }).click();
await button("Disable the person").click();
await page.getByRole("dialog").waitFor({ state: "hidden" });
await page.getByRole("row").filter({ hasText: "grace" }).getByText("disabled").first().waitFor();
await inspect(page, "people");
result.disabled = new URL((await visitor.goto(`${base}/boxes`)).url()).pathname;

// A webhook, whose key is shown once.
await open("/webhooks");
await page.getByLabel("Name").fill("chat");
await page.getByLabel("Address", { exact: true }).fill("https://127.0.0.1:9/?a=%22%3E%3Cscript%3Ealert(4)'");
await page.getByLabel("The server has a private address").check();
await button("Add the webhook").click();
await page.getByText("Its key is not shown again").waitFor();
await page.getByRole("link", { name: "chat" }).click();
await button("Send a test").click();
await page.getByRole("row").nth(1).waitFor();
await inspect(page, "webhook");
await button("Remove").click();
await button("Remove the webhook").click();
await page.getByText("There is no webhook").waitFor();

// Usage: the requests of the box are counted.
for (const query of ["", "?show=bytes&by=box", "?step=hour&by=run", "?step=month&by=principal&show=calls"]) {
  await open(`/usage${query}`);
  await page.getByRole("heading", { name: "Usage" }).waitFor();
  await inspect(page, `usage${query.replace(/\W/g, "_")}`);
}
await call(page, "DELETE", "/v1/boxes/reach");
// The policy with an error was refused on purpose, which the browser reports as an error.
const isRefusal = (fault) => fault.includes("/policy: Failed to load resource") && fault.includes("400");
for (const fault of faults.splice(0)) if (!isRefusal(fault)) faults.push(fault);
await finish(browser, result);
