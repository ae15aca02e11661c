// expect: ["open a","open b","work","close b","close a"]
const log: string[] = [];
class Handle {
  constructor(private name: string) { log.push(`open ${name}`); }
  close() { log.push(`close ${this.name}`); }
}
function withHandle<T>(name: string, f: (h: Handle) => T): T {
  const h = new Handle(name);
  try { return f(h); } finally { h.close(); }
}
withHandle("a", () => withHandle("b", () => log.push("work")));
log;
