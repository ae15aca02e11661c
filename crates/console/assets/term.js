// The terminal of a box. The library adds style elements, which get the nonce of the page.
import { Terminal } from "/static/xterm-6.0.0.js";
import { FitAddon } from "/static/addon-fit-0.11.0.js";
const [take, place, state, after] = document.querySelectorAll("[data-terminal]");
const proto = Document.prototype;
const { createElement } = proto;
proto.createElement = function (...of) {
  const element = createElement.apply(this, of);
  if (of[0] === "style") element.nonce = place.dataset.nonce;
  return element;
};
const { backgroundColor: background, fontFamily } = getComputedStyle(place);
const terminal = new Terminal({ fontFamily, fontSize: 13, scrollback: 0, theme: { background } });
const fit = new FitAddon();
terminal.loadAddon(fit);
terminal.open(place);
fit.fit();
const decoder = new TextDecoder();
let socket;
const send = (data) => socket.readyState === 1 && socket.send(data);
const connect = () => {
  const { rows, cols } = terminal;
  socket = new WebSocket(`${place.dataset.terminal}?rows=${rows}&columns=${cols}`, "belljar.stream.v1");
  socket.binaryType = "arraybuffer";
  socket.onopen = () => state.textContent = "Connected";
  socket.onmessage = ({ data }) => {
    // A box cannot change the direction of text.
    if (data.byteLength) return terminal.write(decoder.decode(data.slice(9), { stream: true }).replace(/[\u202a-\u202e\u2066-\u2069]/g, ""));
    const { type, own } = JSON.parse(data);
    // A box that has stopped shows its log.
    if (type === "exit") setTimeout(() => location.reload(), 1500);
    else take.hidden = own;
  };
  socket.onclose = () => {
    state.textContent = "Connecting again …";
    setTimeout(connect, 2000);
  };
};
connect();
terminal.onData((text) => {
  const keys = new TextEncoder().encode(text);
  // A message has at most 64 KiB of data. Before it are the channel 0 and a position that keys do not need.
  for (let at = 0; at < keys.length; at += 65536) send(new Blob([new Uint8Array(9), keys.slice(at, at + 65536)]));
});
terminal.onResize(({ rows, cols }) => send(JSON.stringify({ type: "resize", rows, columns: cols })));
terminal.attachCustomKeyEventHandler(({ key }) => key !== "F6" || !!after.focus());
take.onclick = () => send('{"type":"take_keyboard"}');
new ResizeObserver(() => fit.fit()).observe(place);
