// expect: {"full":"Grace Hopper","sym":1,"desc":"id","keys":["full","first","last"],"hidden":9,"frozen":2,"own":["1","b","a"],"iter":[1,2]}
const id = Symbol("id");
const o = {
  [id]: 1, get full() { return `${this.first} ${this.last}`; }, set full(v) { [this.first, this.last] = v.split(" "); }, first: "A", last: "B",
};
o.full = "Grace Hopper";
const frozen = Object.freeze({ deep: { x: 1 } });
frozen.deep.x = 2;
Object.defineProperty(o, "hidden", { value: 9, enumerable: false });
({ full: o.full, sym: o[id], desc: id.description, keys: Object.keys(o), hidden: o.hidden, frozen: frozen.deep.x, own: Object.getOwnPropertyNames({ b: 1, a: 2, 1: 0 }), iter: [...{ *[Symbol.iterator]() { yield 1; yield 2; } }] });
