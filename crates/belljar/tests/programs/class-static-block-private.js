// expect: [42,[],true,false]
class Registry {
  static #items = new Map();
  static { this.#items.set("default", () => 42); }
  static register(name, f) { this.#items.set(name, f); return this; }
  static make(name) {
    const f = this.#items.get(name);
    if (!f) throw new ReferenceError(`Unknown: ${name}`);
    return f();
  }
  static isRegistry(o) { return #tag in o; }
  #tag = true;
}
Registry.register("list", () => []);
[Registry.make("default"), Registry.make("list"), Registry.isRegistry(new Registry()), Registry.isRegistry({})];
