// expect: ["a","c"]
// stdout: [ 'a', 'c' ]
class LRUCache<K, V> {
  private cache = new Map<K, V>();
  constructor(private readonly capacity: number) {}
  get(key: K): V | undefined {
    if (!this.cache.has(key)) return undefined;
    const value = this.cache.get(key)!;
    this.cache.delete(key);
    this.cache.set(key, value);
    return value;
  }
  set(key: K, value: V) {
    this.cache.delete(key);
    if (this.cache.size >= this.capacity) this.cache.delete(this.cache.keys().next().value as K);
    this.cache.set(key, value);
  }
  keys() { return [...this.cache.keys()]; }
}
const cache = new LRUCache<string, number>(2);
cache.set("a", 1);
cache.set("b", 2);
cache.get("a");
cache.set("c", 3);
console.log(cache.keys());
cache.get("b") === undefined && cache.keys();
