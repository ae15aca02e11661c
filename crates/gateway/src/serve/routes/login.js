"use strict";
// The code is in the fragment of the address. It is removed from the address before it is used.
const code = location.hash.slice(1);
history.replaceState(null, "", "/login");
const show = (text) => {
  document.getElementById("state").textContent = text;
};
const showSender = async () => {
  const answer = await fetch("/v1/me");
  if (!answer.ok) {
    show("You are not logged in. Run `belljar login-link` and open the link that it prints.");
    return;
  }
  const me = await answer.json();
  show(`You are logged in as ${me.principal}, ${me.role} of the tenant ${me.tenant}.`);
  document.getElementById("console").hidden = false;
};
const login = async () => {
  if (code === "") {
    await showSender();
    return;
  }
  const headers = { "Content-Type": "application/json" };
  const body = JSON.stringify({ code });
  const answer = await fetch("/auth/link", { method: "POST", headers, body });
  if (!answer.ok) {
    const problem = await answer.json();
    show(problem.detail);
    return;
  }
  if (answer.status === 200) {
    // An invited person logs in with the identity provider first.
    const next = await answer.json();
    location.assign(next.location);
    return;
  }
  location.replace("/");
};
login().catch(() => show("The server did not answer. Try the link again."));
