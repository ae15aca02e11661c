// expect: {"shared":3,"log":["start 1","end 1","start 2","end 2","start 3","end 3"]}
class Mutex {
  private last: Promise<void> = Promise.resolve();
  run<T>(f: () => Promise<T>): Promise<T> {
    const result = this.last.then(f);
    this.last = result.then(() => {}, () => {});
    return result;
  }
}
const mutex = new Mutex();
let shared = 0;
const log: string[] = [];
await Promise.all([1, 2, 3].map((id) => mutex.run(async () => {
  const read = shared;
  log.push(`start ${id}`);
  await new Promise((r) => setTimeout(r, 4 - id));
  shared = read + 1;
  log.push(`end ${id}`);
})));
return { shared, log };
