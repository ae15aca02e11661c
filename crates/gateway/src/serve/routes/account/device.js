"use strict";
// The code can be in the fragment of the address, which is in no log.
const element = (id) => document.getElementById(id);
const show = (text) => {
  element("state").textContent = text;
};
const post = async (path, body) => {
  const me = await fetch("/v1/me");
  if (!me.ok) {
    show("You are not logged in. Log in at /login, then open this page again.");
    return null;
  }
  const { csrf } = await me.json();
  const headers = { "Content-Type": "application/json", "X-Belljar-Csrf": csrf };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) {
    const problem = await answer.json();
    show(problem.detail);
    return null;
  }
  return answer;
};
const failed = () => show("The server did not answer. Try again.");
const find = async () => {
  show("");
  const answer = await post("/auth/device/find", { user_code: element("code").value });
  if (answer === null) {
    return;
  }
  const login = await answer.json();
  element("name").textContent = login.name;
  element("from").textContent = login.from;
  element("scopes").textContent = login.scopes.join(", ");
  element("find").hidden = true;
  element("answer").hidden = false;
};
const decide = async (word) => {
  const body = { user_code: element("code").value, answer: word };
  if ((await post("/auth/device/answer", body)) === null) {
    return;
  }
  element("answer").hidden = true;
  show(word === "permit" ? "The device is logged in." : "The login of the device is denied.");
};
element("find").addEventListener("submit", (event) => {
  event.preventDefault();
  find().catch(failed);
});
element("answer").addEventListener("submit", (event) => {
  event.preventDefault();
  decide(event.submitter.value).catch(failed);
});
element("code").value = location.hash.slice(1);
history.replaceState(null, "", "/device");
