// expect: ["login ada","tick 1"]
type Handler<T> = (payload: T) => void;

class Emitter<Events extends Record<string, unknown>> {
  private handlers: { [K in keyof Events]?: Handler<Events[K]>[] } = {};
  on<K extends keyof Events>(event: K, handler: Handler<Events[K]>): () => void {
    (this.handlers[event] ??= []).push(handler);
    return () => { this.handlers[event] = this.handlers[event]?.filter((h) => h !== handler); };
  }
  emit<K extends keyof Events>(event: K, payload: Events[K]): void {
    this.handlers[event]?.forEach((h) => h(payload));
  }
}

const bus = new Emitter<{ login: { user: string }; tick: number }>();
const seen: string[] = [];
const off = bus.on("login", ({ user }) => seen.push(`login ${user}`));
bus.on("tick", (n) => seen.push(`tick ${n}`));
bus.emit("login", { user: "ada" });
off();
bus.emit("login", { user: "bob" });
bus.emit("tick", 1);
seen;
