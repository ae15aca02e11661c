// expect: ["$12.50",2249,251,"{\"cents\":1250}","[object Money]",true]
const Serializable = (Base) => class extends Base { serialize() { return JSON.stringify(this); } };
const Comparable = (Base) => class extends Base { compare(o) { return this.valueOf() - o.valueOf(); } };
class Money {
  constructor(cents) { this.cents = cents; }
  valueOf() { return this.cents; }
  get [Symbol.toStringTag]() { return "Money"; }
  [Symbol.toPrimitive](hint) { return hint === "string" ? `$${(this.cents / 100).toFixed(2)}` : this.cents; }
  static [Symbol.hasInstance](x) { return x && typeof x.cents === "number"; }
}
class Price extends Serializable(Comparable(Money)) {}
const a = new Price(1250), b = new Price(999);
[`${a}`, a + b, a.compare(b), a.serialize(), Object.prototype.toString.call(b), { cents: 3 } instanceof Money];
