// expect: {"log":["ada: hi","first only","bob: hey"],"value":42,"count":0,"heard":false}
import { EventEmitter, once } from "node:events";

class Chat extends EventEmitter {}
const chat = new Chat();
const log = [];
chat.on("message", (from, text) => log.push(`${from}: ${text}`));
chat.once("message", () => log.push("first only"));
chat.emit("message", "ada", "hi");
chat.emit("message", "bob", "hey");
setTimeout(() => chat.emit("done", 42), 1);
const [value] = await once(chat, "done");
chat.removeAllListeners("message");
({ log, value, count: chat.listenerCount("message"), heard: chat.emit("nobody") });
