// expect: 4
// stdout: 4 -> 3 -> 2 -> 1
class Node {
  constructor(value, next = null) { this.value = value; this.next = next; }
}
class LinkedList {
  head = null;
  length = 0;
  static from(xs) { const l = new LinkedList(); for (const x of xs) l.append(x); return l; }
  append(value) {
    const node = new Node(value);
    if (!this.head) this.head = node;
    else { let n = this.head; while (n.next) n = n.next; n.next = node; }
    this.length++;
    return this;
  }
  reverse() {
    let [prev, cur] = [null, this.head];
    while (cur) [cur.next, prev, cur] = [prev, cur, cur.next];
    this.head = prev;
    return this;
  }
  *[Symbol.iterator]() { for (let n = this.head; n; n = n.next) yield n.value; }
  toString() { return [...this].join(" -> "); }
}
const list = LinkedList.from([1, 2, 3, 4]);
console.log(`${list.reverse()}`);
list.length;
