// expect: [7,9,512,-1.5,"Expected a number at 3","Unexpected \"$\" at 1"]
// Recursive descent: + - * / ^ ( ) and unary minus
class Parser {
  private pos = 0;
  constructor(private readonly src: string) {}
  private peek = () => this.src.slice(this.pos).trimStart()[0];
  private eat(c: string): boolean {
    if (this.peek() !== c) return false;
    this.pos = this.src.indexOf(c, this.pos) + 1;
    return true;
  }
  parse(): number {
    const v = this.sum();
    if (this.peek()) throw new SyntaxError(`Unexpected "${this.peek()}" at ${this.pos}`);
    return v;
  }
  private sum(): number {
    let v = this.product();
    for (;;) {
      if (this.eat("+")) v += this.product();
      else if (this.eat("-")) v -= this.product();
      else return v;
    }
  }
  private product(): number {
    let v = this.power();
    for (;;) {
      if (this.eat("*")) v *= this.power();
      else if (this.eat("/")) v /= this.power();
      else return v;
    }
  }
  private power(): number { const b = this.unary(); return this.eat("^") ? b ** this.power() : b; }
  private unary(): number {
    if (this.eat("-")) return -this.unary();
    if (this.eat("(")) { const v = this.sum(); if (!this.eat(")")) throw new SyntaxError("missing )"); return v; }
    const m = /^\s*(\d+(?:\.\d+)?)/.exec(this.src.slice(this.pos));
    if (!m) throw new SyntaxError(`Expected a number at ${this.pos}`);
    this.pos += m[0].length;
    return Number(m[1]);
  }
}
const calc = (s: string) => { try { return new Parser(s).parse(); } catch (e) { return (e as Error).message; } };
["1 + 2 * 3", "(1+2)*3", "2^3^2", "-4 + 10/4", "1 +", "2 $ 3"].map(calc);
