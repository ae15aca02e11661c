// The console: forms that send JSON to the API, live regions, keys and the theme. No page needs a script of its own.
"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const policy = window.trustedTypes?.createPolicy("belljar", { createHTML: (text) => text });
  const csrf = () => document.querySelector('meta[name="csrf"]')?.content ?? "";

  // The theme.
  const saved = localStorage.getItem("theme");
  if (saved === "light" || saved === "dark") root.dataset.theme = saved;
  const toggleTheme = () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  };

  // Forms. `data-api="METHOD PATH"` names the route, and the names of the inputs are the fields of the body. A name
  // with dots is a nested field. `data-type` is one of number, lines, words, json, flag and optional (the default).
  const valueOf = (input) => {
    if (input.type === "checkbox") return input.checked;
    const text = input.value;
    const kind = input.dataset.type ?? "optional";
    if (text === "" && kind !== "text") return undefined;
    if (kind === "number") return Number(text);
    if (kind === "lines") return text.split("\n").filter((line) => line !== "");
    if (kind === "words") return text.split(/[\s,]+/).filter((word) => word !== "");
    if (kind === "json") return JSON.parse(text);
    return text;
  };
  const put = (body, name, value) => {
    const parts = name.split(".");
    const last = parts.pop();
    let at = body;
    for (const part of parts) at = at[part] ??= {};
    if (name.endsWith("[]")) (at[last.slice(0, -2)] ??= []).push(value);
    else at[last] = value;
  };
  const bodyOf = (form, button) => {
    const body = form.dataset.body ? JSON.parse(form.dataset.body) : {};
    for (const input of form.elements) {
      if (!input.name || input.disabled || input.type === "submit" || input.tagName === "BUTTON") continue;
      if (input.type === "radio" && !input.checked) continue;
      if (input.name.endsWith("[]") && input.type === "checkbox") {
        if (input.checked) put(body, input.name, input.value);
        continue;
      }
      const value = valueOf(input);
      if (value !== undefined) put(body, input.name, value);
    }
    if (button?.name) put(body, button.name, button.value);
    return body;
  };
  const fill = (text, from) => text.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(from[name] ?? ""));
  const send = async (form, button) => {
    const shown = form.querySelector(".problem");
    const [method, path] = fill(form.dataset.api, Object.fromEntries(new FormData(form))).split(" ");
    const headers = { "X-Belljar-Csrf": csrf() };
    if (method === "POST") headers["Idempotency-Key"] = form.dataset.key ??= crypto.randomUUID();
    if (form.dataset.etag) headers["If-Match"] = `"${form.dataset.etag}"`;
    if (form.dataset.new !== undefined) headers["If-None-Match"] = "*";
    const request = { method, headers };
    if (method !== "DELETE") {
      headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(bodyOf(form, button));
    }
    const answer = await fetch(path, request);
    const text = await answer.text();
    const body = text.startsWith("{") ? JSON.parse(text) : {};
    if (!answer.ok) {
      // A refused request did nothing, so a corrected one is another request.
      if (answer.status !== 429 && answer.status < 500) delete form.dataset.key;
      const field = body.field?.split("/").filter((part) => part).join(".");
      for (const input of form.elements) input.setAttribute?.("aria-invalid", String(!!field && input.name === field));
      throw new Error(body.detail ?? answer.statusText);
    }
    delete form.dataset.key;
    for (const output of all("[data-out]", form)) {
      output.textContent = body[output.dataset.out] ?? "";
      output.closest("[data-result]")?.removeAttribute("hidden");
    }
    if (shown) shown.hidden = true;
    if (form.dataset.go) location.assign(fill(form.dataset.go, body));
    else if (form.dataset.stay === undefined) { form.closest("dialog")?.close(); await refresh(() => true); }
  };
  const onSubmit = (event) => {
    const form = event.target;
    if (!form.dataset.api) return;
    event.preventDefault();
    const buttons = all("button", form).filter((button) => !button.disabled);
    const shown = form.querySelector(".problem");
    for (const button of buttons) button.disabled = true;
    send(form, event.submitter)
      .catch((error) => {
        if (!shown) return;
        shown.textContent = error.message;
        shown.hidden = false;
      })
      .finally(() => { for (const button of buttons) button.disabled = false; });
  };

  // Live regions: `id` and `data-on`, the kinds of events that change the region. The page is read again, and its
  // regions are exchanged, except one that the person is using.
  let due = null;
  const inUse = (region) => region.matches(":hover") || region.contains(document.activeElement) || region.querySelector("dialog[open]");
  const refresh = async (wanted) => {
    const answer = await fetch(location.href);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(policy ? policy.createHTML(await answer.text()) : await answer.text(), "text/html");
    for (const region of all("[data-on]")) {
      if (!wanted(region)) continue;
      const fresh = page.getElementById(region.id);
      if (fresh) region.replaceWith(document.adoptNode(fresh));
    }
    const [old, now] = [document.querySelector(".side .nav"), page.querySelector(".side .nav")];
    if (old && now && !old.contains(document.activeElement)) old.replaceWith(document.adoptNode(now));
    prepare();
  };
  const kinds = new Set();
  const changed = (region) => region.dataset.on.split(" ").some((start) => [...kinds].some((kind) => kind.startsWith(start)));
  const later = () => {
    due ??= setTimeout(async () => {
      due = null;
      const regions = all("[data-on]").filter(changed);
      if (regions.some(inUse)) { later(); return; }
      kinds.clear();
      const ids = new Set(regions.map((region) => region.id));
      if (ids.size) await refresh((region) => ids.has(region.id)).catch(() => {});
    }, 700);
  };
  const onKind = (kind) => {
    kinds.add(kind);
    later();
  };
  const live = (text) => {
    for (const element of all("[data-live]")) { element.textContent = text; element.hidden = false; }
  };
  // Reads server-sent events until the connection ends. `EventSource` would need a list of all kinds.
  let last = null;
  const follow = async (tell) => {
    const answer = await fetch("/v1/events", { headers: last === null ? {} : { "Last-Event-ID": last } });
    if (!answer.ok) throw new Error(answer.statusText);
    live("Live");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const field = (name) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1];
        if (field("event") === "reset") last = null;
        if (field("id") === undefined) continue;
        last = field("id");
        tell({ id: last, kind: field("event") });
      }
    }
  };
  // One tab has the connection and tells the others, because a browser opens six connections to a server.
  const listen = () => {
    if (!document.querySelector("[data-live]")) return;
    const channel = new BroadcastChannel("belljar");
    const heard = ({ id, kind }) => { live(`Live · event ${id}`); onKind(kind); };
    channel.onmessage = ({ data }) => heard(data);
    navigator.locks.request("belljar-events", async () => {
      for (;;) {
        await follow((event) => { channel.postMessage(event); heard(event); }).catch(() => {});
        live("Connecting again …");
        await new Promise((resolve) => setTimeout(resolve, 2000));
      }
    });
  };

  // Keys.
  const goTo = { o: "/", b: "/boxes", r: "/runs", v: "/review", a: "/approvals", n: "/requests", l: "/ledger" };
  let going = false;
  const move = (step, selector) => {
    const links = all(selector);
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
  };
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, .term")) return;
    const { key } = event;
    if (going && goTo[key]) { location.assign(goTo[key]); return; }
    going = key === "g";
    if (key === "/") { event.preventDefault(); document.querySelector(".search input")?.focus(); }
    else if (key === "?") document.getElementById("keys")?.showModal();
    else if (key === "t") toggleTheme();
    else if (key === "j") move(1, "tr.row a.name, .need .btn, .files a");
    else if (key === "k") move(-1, "tr.row a.name, .need .btn, .files a");
    else if (key === "]") move(1, ".files a");
    else if (key === "[") move(-1, ".files a");
    else if (key === "x") document.activeElement.closest("li")?.querySelector('input[type="checkbox"]')?.click();
    else if (key === "A" || key === "D") document.querySelector(`button[data-key="${key}"]`)?.click();
  };

  // What scrolls sideways must be reachable by keyboard; what does not scroll must not be a stop.
  const markScrollers = () => {
    for (const box of all(".scroll, .code, .proof, .timeline, .plot")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  // A button that changes the world is armed half a second after it is drawn.
  const arm = (button) => {
    if (button.dataset.armed) return;
    button.dataset.armed = "no";
    button.disabled = true;
    setTimeout(() => { button.disabled = false; button.dataset.armed = "yes"; }, 500);
  };
  const left = (element) => {
    const seconds = Math.max(0, Math.round((Date.parse(element.dataset.until) - Date.now()) / 1000));
    const pad = (number) => String(number).padStart(2, "0");
    const [days, hours] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600)];
    if (days > 1) return `${days} d left`;
    if (hours > 0) return `${hours} h ${Math.floor(seconds / 60) % 60} min left`;
    return `${Math.floor(seconds / 60)}:${pad(seconds % 60)} left`;
  };
  const tick = () => { for (const element of all("[data-until]")) element.textContent = left(element); };
  const prepare = () => {
    markScrollers();
    tick();
    all("[data-arm]").forEach(arm);
    document.dispatchEvent(new Event("belljar:drawn"));
  };
  document.addEventListener("DOMContentLoaded", () => {
    prepare();
    setInterval(tick, 1000);
    addEventListener("resize", markScrollers);
    document.addEventListener("submit", onSubmit);
    document.addEventListener("keydown", onKey);
    document.addEventListener("change", ({ target }) => { if (target.dataset.submit !== undefined) target.form.requestSubmit(); });
    document.addEventListener("click", ({ target }) => {
      const button = target.closest("[data-theme-toggle], [data-dialog]");
      if (button?.dataset.dialog) document.getElementById(button.dataset.dialog)?.showModal();
      else if (button) toggleTheme();
    });
    listen();
  });
})();
