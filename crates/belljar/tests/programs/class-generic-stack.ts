// expect: {"popped":3,"top":2,"size":2,"all":[2,1]}
class Stack<T> implements Iterable<T> {
  private items: T[] = [];
  push(...xs: T[]): void { this.items.push(...xs); }
  pop(): T | undefined { return this.items.pop(); }
  peek(): T | undefined { return this.items[this.items.length - 1]; }
  get size() { return this.items.length; }
  *[Symbol.iterator](): Iterator<T> {
    for (let i = this.items.length - 1; i >= 0; i--) yield this.items[i];
  }
}
const s = new Stack<number>();
s.push(1, 2, 3);
const popped = s.pop();
return { popped, top: s.peek(), size: s.size, all: [...s] };
