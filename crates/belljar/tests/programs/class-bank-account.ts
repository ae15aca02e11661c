// expect: {"owner":"Ada","balance":120,"caught":"InsufficientFunds: Need 1000, have 120","count":1}
class InsufficientFunds extends Error {
  constructor(public readonly needed: number, public readonly available: number) {
    super(`Need ${needed}, have ${available}`);
    this.name = "InsufficientFunds";
  }
}

class Account {
  #balance = 0;
  private history: { type: "in" | "out"; amount: number }[] = [];
  static count = 0;

  constructor(public owner: string, initial = 0) {
    this.#balance = initial;
    Account.count++;
  }

  get balance(): number { return this.#balance; }

  deposit(amount: number): this {
    this.#balance += amount;
    this.history.push({ type: "in", amount });
    return this;
  }

  withdraw(amount: number): this {
    if (amount > this.#balance) throw new InsufficientFunds(amount, this.#balance);
    this.#balance -= amount;
    this.history.push({ type: "out", amount });
    return this;
  }
}

const acc = new Account("Ada", 100).deposit(50).withdraw(30);
let caught: string | undefined;
try {
  acc.withdraw(1000);
} catch (e) {
  if (e instanceof InsufficientFunds) caught = `${e.name}: ${e.message}`;
}
({ owner: acc.owner, balance: acc.balance, caught, count: Account.count });
