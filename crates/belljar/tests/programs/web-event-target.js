// expect: {"log":["ping",1,"object","ping",2],"prevented":true}
const t = new EventTarget();
const log = [];
t.addEventListener("ping", (e) => log.push(e.type, e.detail));
t.addEventListener("ping", { handleEvent: () => log.push("object") }, { once: true });
t.dispatchEvent(new CustomEvent("ping", { detail: 1 }));
t.dispatchEvent(new CustomEvent("ping", { detail: 2 }));
const e = new Event("x", { cancelable: true });
t.addEventListener("x", (ev) => ev.preventDefault());
({ log, prevented: !t.dispatchEvent(e) });
