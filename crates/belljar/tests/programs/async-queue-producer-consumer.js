// expect: [0,1,2]
class AsyncQueue {
  #items = []; #waiting = []; #closed = false;
  push(x) { const w = this.#waiting.shift(); w ? w({ value: x, done: false }) : this.#items.push(x); }
  close() { this.#closed = true; for (const w of this.#waiting.splice(0)) w({ value: undefined, done: true }); }
  [Symbol.asyncIterator]() {
    return {
      next: () => this.#items.length ? Promise.resolve({ value: this.#items.shift(), done: false })
        : this.#closed ? Promise.resolve({ value: undefined, done: true })
        : new Promise((r) => this.#waiting.push(r)),
    };
  }
}
const q = new AsyncQueue();
const got = [];
const consumer = (async () => { for await (const x of q) got.push(x); })();
for (let i = 0; i < 3; i++) { q.push(i); await new Promise((r) => setTimeout(r, 1)); }
q.close();
await consumer;
got;
