// A person is logged in, and then opens pages of other origins on the same machine: another port of
// localhost, as a forwarded port of a box would be, and another name below localhost. Each page tries
// everything that a page can do with the server. Prints one JSON object: attempt -> result.
import http from "node:http";
import { createRequire } from "node:module";

const [modules, chromium, link] = process.argv.slice(2);
const { chromium: browserType } = createRequire(modules + "/")("playwright-core");
const base = new URL(link).origin;

const attacker = http.createServer((request, response) => {
  response.setHeader("Content-Type", "text/html");
  response.end("<!doctype html><title>other</title><body></body>");
});
await new Promise((resolve) => attacker.listen(0, "127.0.0.1", resolve));
const port = attacker.address().port;

const browser = await browserType.launch({
  executablePath: chromium,
  args: [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
  ],
});
const context = await browser.newContext();
const own = await context.newPage();
await own.goto(link);
await own.waitForURL(`${base}/`);

// Requests of the server's own page, which are the control.
const me = await own.evaluate(async () => (await fetch("/v1/me")).json());
const create = (name) =>
  own.evaluate(
    async ([name, csrf]) => {
      const headers = { "Content-Type": "application/json", "X-Belljar-Csrf": csrf };
      const body = JSON.stringify({ name, start: false });
      return (await fetch("/v1/boxes", { method: "POST", headers, body })).status;
    },
    [name, me.csrf],
  );
const boxes = () =>
  own.evaluate(async () => (await (await fetch("/v1/boxes")).json()).items.map((item) => item.name));

const results = { control: { created: await create("control"), boxes: await boxes() } };

/// The attempts, which run in a page of another origin.
const attempts = async ([base, csrf]) => {
  const tried = {};
  const attempt = async (name, act) => {
    try {
      tried[name] = await Promise.race([
        act(),
        new Promise((resolve) => setTimeout(() => resolve("nothing happened"), 3000)),
      ]);
    } catch (error) {
      tried[name] = "refused: " + error.name;
    }
  };
  const body = (name) => JSON.stringify({ name, start: false });
  const read = (path) => fetch(base + path, { credentials: "include" }).then((it) => it.text());
  await attempt("read the account", () => read("/v1/me"));
  await attempt("read the boxes", () => read("/v1/boxes"));
  await attempt("read without cors", async () => {
    const response = await fetch(base + "/v1/me", { credentials: "include", mode: "no-cors" });
    return "opaque " + (await response.text()).length;
  });
  await attempt("create with json", async () => {
    const headers = { "Content-Type": "application/json", "X-Belljar-Csrf": csrf };
    const request = { method: "POST", credentials: "include", headers, body: body("json") };
    return (await fetch(base + "/v1/boxes", request)).status;
  });
  await attempt("create with plain text", async () => {
    const request = { method: "POST", credentials: "include", mode: "no-cors", body: body("plain") };
    return "opaque " + (await fetch(base + "/v1/boxes", request)).status;
  });
  const form = (action, method, fields) => {
    const frame = document.createElement("iframe");
    frame.name = "target" + Math.random();
    const element = document.createElement("form");
    Object.assign(element, { action: base + action, method, enctype: "text/plain", target: frame.name });
    for (const [name, value] of Object.entries(fields)) {
      const input = document.createElement("input");
      Object.assign(input, { name, value });
      element.append(input);
    }
    document.body.append(frame, element);
    return new Promise((resolve) => {
      frame.onload = () => {
        if (frame.dataset.sent) {
          let readable = "no document";
          try {
            readable = frame.contentDocument ? frame.contentDocument.body.innerText : readable;
          } catch (error) {
            readable = "refused: " + error.name;
          }
          resolve(readable);
        }
      };
      frame.dataset.sent = "yes";
      element.submit();
    });
  };
  await attempt("create with a form", () =>
    form("/v1/boxes", "post", { '{"name":"form","start":false,"x':'"}' }));
  await attempt("log out with a form", () => form("/auth/logout", "post", {}));
  await attempt("connect a websocket", () => new Promise((resolve) => {
    const url = base.replace("http", "ws") + "/v1/boxes/control/screen";
    const socket = new WebSocket(url, "belljar.stream.v1");
    socket.onopen = () => resolve("connected");
    socket.onerror = () => resolve("refused");
  }));
  await attempt("listen to events", () => new Promise((resolve) => {
    const source = new EventSource(base + "/v1/events", { withCredentials: true });
    source.onopen = () => resolve("connected");
    source.onerror = () => { source.close(); resolve("refused"); };
  }));
  await attempt("show in a frame", () => new Promise((resolve) => {
    const frame = document.createElement("iframe");
    frame.src = base + "/login";
    frame.onload = () => {
      try {
        resolve(frame.contentDocument ? "readable" : "no document");
      } catch (error) {
        resolve("refused: " + error.name);
      }
    };
    document.body.append(frame);
  }));
  for (const [element, path] of [["script", "/login.js"], ["img", "/v1/me"], ["script", "/v1/boxes"]]) {
    await attempt(`load ${path} as ${element}`, () => new Promise((resolve) => {
      const loaded = document.createElement(element);
      loaded.src = base + path;
      loaded.onload = () => resolve("loaded");
      loaded.onerror = () => resolve("refused");
      document.body.append(loaded);
    }));
  }
  await attempt("read an opened window", () => new Promise((resolve) => {
    const opened = window.open(base + "/login");
    setTimeout(() => {
      try {
        resolve(opened === null || opened.closed ? "cut off" : "read " + opened.document.title);
      } catch (error) {
        resolve("refused: " + error.name);
      }
    }, 1000);
  }));
  tried.cookies = document.cookie;
  return tried;
};

for (const host of ["localhost", "other.localhost", "127.0.0.1"]) {
  const page = await context.newPage();
  await page.goto(`http://${host}:${port}/`);
  results[host] = await page.evaluate(attempts, [base, me.csrf]);
  await page.close();
}
results.after = { boxes: await boxes(), created: await create("still-logged-in") };
console.log(JSON.stringify(results));
await browser.close();
attacker.close();
