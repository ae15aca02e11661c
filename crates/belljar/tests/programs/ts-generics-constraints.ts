// expect: {"names":["A","B"],"n":5,"g":{"odd":[1,3],"even":[2,4]}}
function pluck<T, K extends keyof T>(items: readonly T[], key: K): T[K][] {
  return items.map((i) => i[key]);
}
function groupBy<T, K extends PropertyKey>(xs: T[], f: (x: T) => K): Record<K, T[]> {
  const out = {} as Record<K, T[]>;
  for (const x of xs) (out[f(x)] ||= []).push(x);
  return out;
}
const pipe = <A, B, C>(f: (a: A) => B, g: (b: B) => C) => (a: A): C => g(f(a));
const people = [{ name: "A", age: 30 }, { name: "B", age: 20 }] as const;
const names = pluck(people, "name");
const len = pipe((s: string) => s.split(""), (xs) => xs.length);
({ names, n: len("hello"), g: groupBy([1, 2, 3, 4], (x) => (x % 2 ? "odd" : "even")) });
