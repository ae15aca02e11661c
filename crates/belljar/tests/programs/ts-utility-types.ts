// expect: {"u":{"id":1,"name":"Ada","email":"ada@example.com"},"name":"Ada","d":{"a":1},"frozen":true,"t":"undefined"}
type User = { id: number; name: string; email?: string };
type Patch = Partial<Omit<User, "id">>;
type Dict<T = unknown> = { [key: string]: T };
type Getters<T> = { [K in keyof T as `get${Capitalize<string & K>}`]: () => T[K] };
declare const neverDefined: string;

function update(user: User, patch: Patch): Readonly<User> {
  return Object.freeze({ ...user, ...patch });
}
const u = update({ id: 1, name: "Ada" }, { email: "ada@example.com" });
const g: Getters<Pick<User, "name">> = { getName: () => u.name };
const d = <Dict<number>>{ a: 1 };
const frozen = Object.isFrozen(u) satisfies boolean;
return { u, name: g.getName(), d, frozen, t: typeof neverDefined };
