// The console: forms that send JSON to the API, live regions, keys and the theme. No page needs a script of its own.
"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const active = () => document.activeElement;
  const on = (kind, heard) => document.addEventListener(kind, heard);
  const one = (selector, from = document) => from.querySelector(selector);
  const policy = window.trustedTypes?.createPolicy("belljar", { createHTML: (text) => text });
  const csrf = () => one('[name="csrf"]')?.content ?? "";

  // The theme.
  const saved = localStorage.getItem("theme");
  if (saved) root.dataset.theme = saved;
  const toggleTheme = () => {
    const now = root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    localStorage.setItem("theme", (root.dataset.theme = now === "dark" ? "light" : "dark"));
  };

  // Forms. `data-api="METHOD PATH"` names the route, and the names of the inputs are the fields of the body. A name
  // with dots is a nested field, one that ends with `[]` is a list, and one with a space is two fields. `data-type` is
  // one of number, lines, words, text, path (a part of the path only) and optional (the default). `data-body` is
  // the start of the body, `data-only` names its fields, and `data-some` a list that must have an item. A button with
  // `data-api` has a route and data of its own.
  const valueOf = (input) => {
    if (input.type === "checkbox") return input.checked;
    const text = input.value;
    const kind = input.dataset.type ?? "optional";
    if (kind === "path" || (text === "" && kind !== "text")) return undefined;
    if (kind === "number") return Number(text);
    const between = { lines: "\n", words: /[\s,]+/ }[kind];
    if (between) return text.split(between).filter((part) => part);
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
  const bodyOf = (form, button, { body: start, only, some }) => {
    const body = start ? JSON.parse(start) : {};
    for (const input of form.elements) {
      if (only !== undefined && !only.split(" ").includes(input.name)) continue;
      if (!input.name || input.disabled || input.tagName === "BUTTON") continue;
      if (input.type === "radio" && !input.checked) continue;
      if (input.name.endsWith("[]") && input.type === "checkbox") {
        if (input.checked) for (const name of input.name.split(" ")) put(body, name, input.value);
        continue;
      }
      const value = valueOf(input);
      if (value !== undefined) put(body, input.name, value);
    }
    if (button?.name) put(body, button.name, button.value);
    if (some && !body[some]) throw new Error("Choose an item.");
    return body;
  };
  const fill = (text, from) => text.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(from[name] ?? ""));
  const dig = (from, path) => path.split(".").reduce((value, name) => value?.[name], from);
  // A box chose some of the texts, so invisible characters become visible.
  const say = (value) => {
    if (Array.isArray(value)) return value.map(say).join(value[0] instanceof Object ? "\n" : ", ");
    if (value instanceof Object) return Object.values(value).map(say).join(" · ");
    if (typeof value === "boolean") return value ? "yes" : "no";
    return String(value ?? "").replace(/(?![\n\t])\p{C}/gu, (hidden) => `\\u{${hidden.codePointAt(0).toString(16)}}`);
  };
  // Shows a response: `data-out` is one value, `data-shown` is a part for responses with a value, and `data-each` has a
  // row of `data-columns` for each item of an array. `data-part` is hidden without rows.
  const show = (place, body) => {
    for (const output of all("[data-out]", place)) {
      output[output.tagName === "TEXTAREA" ? "value" : "textContent"] = say(dig(body, output.dataset.out));
      output.closest("[data-result]")?.removeAttribute("hidden");
    }
    for (const part of all("[data-shown]", place)) part.hidden = !dig(body, part.dataset.shown);
    for (const list of all("[data-each]", place)) {
      const rows = (dig(body, list.dataset.each) ?? []).map((item) => {
        const row = document.createElement("tr");
        for (const column of list.dataset.columns.split(" ")) row.insertCell().textContent = say(dig(item, column));
        return row;
      });
      list.replaceChildren(...rows);
      list.closest("[data-part]").hidden = !rows.length;
    }
    markScrollers();
  };
  const send = async (form, button) => {
    const shown = one(".problem", form);
    const data = button?.dataset.api ? button.dataset : form.dataset;
    const [method, path] = fill(data.api, Object.fromEntries(new FormData(form))).split(" ");
    const headers = { "X-Belljar-Csrf": csrf() };
    if (method === "POST") headers["Idempotency-Key"] = data.key ??= crypto.randomUUID();
    if (data.etag) headers["If-Match"] = `"${data.etag}"`;
    if ("new" in data) headers["If-None-Match"] = "*";
    const request = { method, headers };
    if (method !== "DELETE") {
      headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(bodyOf(form, button, data));
    }
    const answer = await fetch(path, request);
    const text = await answer.text();
    const body = text.startsWith("{") ? JSON.parse(text) : {};
    if (!answer.ok) {
      // A refused request did nothing, so a corrected one is another request.
      if (answer.status !== 429 && answer.status < 500) delete data.key;
      const field = body.field?.slice(1).replaceAll("/", ".");
      for (const input of form.elements) input.ariaInvalid = String(input.name === field);
      throw new Error(body.detail ?? answer.statusText);
    }
    delete data.key;
    for (const input of form.elements) input.ariaInvalid = null;
    show(document.getElementById(data.show) ?? form, body);
    if (shown) shown.hidden = true;
    if (data.go) location.href = fill(data.go, body);
    else if (!("stay" in data)) { form.closest("dialog")?.close(); await refresh(); }
    else if (answer.status === 201) await refresh(all("[data-on]").filter((region) => !region.contains(form)));
  };
  const onSubmit = (event) => {
    const form = event.target;
    if (!form.dataset.api || event.submitter?.formMethod === "dialog") return;
    event.preventDefault();
    const buttons = all("button:enabled", form);
    const shown = one(".problem", form);
    for (const button of buttons) button.disabled = true;
    send(form, event.submitter)
      .catch((error) => { shown.textContent = error.message; shown.hidden = false; })
      .finally(() => { for (const button of buttons) button.disabled = false; });
  };

  // Live regions: `id` and `data-on`, the kinds of events that change the region. The page is read again, and its
  // regions are exchanged, except those that the person is using. The parts of a region with `data-still` do not move,
  // so it may be exchanged below the pointer.
  let due = null;
  const inUse = (region) =>
    (!("still" in region.dataset) && region.matches(":hover")) || region.contains(active()) || one("dialog[open]", region);
  const refresh = async (wanted = all("[data-on]")) => {
    const answer = await fetch(location.href);
    if (!answer.ok) return;
    const text = await answer.text();
    const page = new DOMParser().parseFromString(policy?.createHTML(text) ?? text, "text/html");
    for (const region of wanted) {
      const fresh = page.getElementById(region.id);
      if (!fresh) continue;
      // An event during the request is newer than the response.
      if ("stale" in region.dataset) fresh.dataset.stale = "";
      region.replaceWith(fresh);
    }
    const [old, now] = [document, page].map((of) => one(".side .nav", of));
    if (!old.contains(active())) old.replaceWith(now);
    prepare();
  };
  const later = () => {
    if (!one("[data-stale]")) return;
    due ??= setTimeout(async () => {
      due = null;
      const ready = all("[data-stale]").filter((region) => !inUse(region));
      for (const region of ready) delete region.dataset.stale;
      if (ready.length) await refresh(ready).catch(() => {});
      later();
    }, 700);
  };
  // Without a kind, every region can have changed: before the first event is heard, something can happen.
  const onKind = (kind) => {
    for (const { dataset } of all("[data-on]")) {
      if (!kind || dataset.on.split(" ").some((start) => kind.startsWith(start))) dataset.stale = "";
    }
    later();
  };
  const live = (text) => { for (const element of all("[data-live]")) [element.textContent, element.hidden] = [text, false]; };
  // Reads server-sent events until the connection ends. `EventSource` would need a list of all kinds.
  let last = null;
  const follow = async (tell) => {
    const answer = await fetch("/v1/events", { headers: last === null ? {} : { "Last-Event-ID": last } });
    if (answer.ok) live("Live");
    if (last === null) onKind();
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
    if (!one("[data-live]")) return;
    const channel = new BroadcastChannel("belljar");
    const heard = ({ id, kind }) => { live(`Live · event ${id}`); onKind(kind); };
    channel.onmessage = ({ data }) => heard(data);
    onKind();
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
  const onKey = (event) => {
    const { key, ctrlKey, metaKey, altKey, target } = event;
    if (ctrlKey || metaKey || altKey || target.closest("input, textarea, select, .term")) return;
    if (going && goTo[key]) { location.href = goTo[key]; return; }
    going = key === "g";
    const step = { j: 1, k: -1, "]": 1, "[": -1 }[key];
    const links = all("tr.row a.name, .need .btn, .files a");
    if (step) links[links.indexOf(active()) + step]?.focus();
    else if (key === "/") { event.preventDefault(); one(".search input")?.focus(); }
    else if (key === "?") one("#keys").showModal();
    else if (key === "t") toggleTheme();
    else if (key === "x") active().closest("li")?.querySelector("input")?.click();
    else if (key === "A" || key === "D") one(`[data-key="${key}"]`)?.click();
  };

  // What scrolls sideways must be reachable by keyboard; what does not scroll is no stop.
  const markScrollers = () => {
    for (const box of all(".scroll, .code, .proof, .timeline, .plot")) {
      box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
    }
  };
  // A button that changes the world is armed half a second after it is drawn.
  const arm = (button) => {
    if (button.dataset.armed) return;
    button.dataset.armed = button.disabled = true;
    setTimeout(() => { button.disabled = false; }, 500);
  };
  const left = ({ dataset: { until } }) => {
    const seconds = Math.max(0, Math.round((Date.parse(until) - Date.now()) / 1000));
    const minutes = Math.floor(seconds / 60);
    if (minutes >= 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min left`;
    return `${minutes}:${String(seconds % 60).padStart(2, "0")} left`;
  };
  const tick = () => { for (const element of all("[data-until]")) element.textContent = left(element); };
  const prepare = () => {
    markScrollers();
    tick();
    all("[data-arm]").forEach(arm);
  };
  on("DOMContentLoaded", () => {
    prepare();
    setInterval(tick, 1000);
    addEventListener("resize", markScrollers);
    on("submit", onSubmit);
    on("keydown", onKey);
    on("change", ({ target }) => { if ("submit" in target.dataset) target.form.requestSubmit(); });
    on("click", ({ target }) => {
      const button = target.closest("[data-theme-toggle], [data-dialog]");
      if (button?.dataset.dialog) one(`#${button.dataset.dialog}`).showModal();
      else if (button) toggleTheme();
    });
    listen();
  });
})();
