"use strict";
// The code is in the fragment of the address. It is removed from the address before it is used.
const code = location.hash.slice(1);
history.replaceState(null, "", "/login");
const show = (text) => {
  document.getElementById("state").textContent = text;
};
const login = async () => {
  if (code === "") {
    show("This address has no code. Run `belljar login-link` and open the link that it prints.");
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
  const me = await (await fetch("/v1/me")).json();
  show(`You are logged in as ${me.principal}, ${me.role} of the tenant ${me.tenant}.`);
};
login().catch(() => show("The server did not answer. Try the link again."));
