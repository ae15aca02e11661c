// expect: ["meow","woof","43","bad!"]
interface Cat { meow(): string }
interface Dog { bark(): string }
const isCat = (a: Cat | Dog): a is Cat => "meow" in a;
function assertIsNumber(val: unknown, msg = "not a number"): asserts val is number {
  if (typeof val !== "number") throw new TypeError(msg);
}
function speak(animal: Cat | Dog): string {
  return isCat(animal) ? animal.meow() : animal.bark();
}
const results: string[] = [speak({ meow: () => "meow" }), speak({ bark: () => "woof" })];
const raw: unknown = JSON.parse("42");
assertIsNumber(raw);
results.push((raw + 1).toString());
try { assertIsNumber("x" as any, "bad!"); } catch (err: unknown) { results.push((err as Error).message); }
results;
