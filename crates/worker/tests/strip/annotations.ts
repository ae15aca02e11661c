const a: number = 1;
let b: string | undefined, c: Array<{ x: number; y?: string }> = [], d!: boolean;
export { a, b, c, d };
//---
function add(x: number, y?: number, ...rest: number[]): number { return x + (y ?? 0) + rest.length }
export default add;
//---
const id = <T,>(x: T): T => x;
const pair = <A, B extends keyof A = keyof A>(a: A, b: B): [A, B] => [a, b];
export const f = async <T>(x: Promise<T>): Promise<T> => await x, g = id, h = pair;
//---
interface User { id: number; name: string; tags?: readonly string[] }
type Id = User["id"];
type Fn = (x: number) => void;
const u: User = { id: 1, name: "x" };
export const n: Id = u.id;
//---
let x = y as unknown as string;
let z = (y as any).foo.bar!.baz!()![0]!;
let w = { a: 1 } satisfies Record<string, number>;
let v = [1, 2] as const;
declare const y: unknown;
//---
const m = new Map<string, Set<number>>();
const e = foo<string>("x"), t = tag<number>`a${1}b`;
const inst = foo<number>;
declare function foo<T>(x: T): T;
declare function tag<T>(strings: TemplateStringsArray, ...rest: T[]): string;
//---
function isString(value: unknown): value is string { return typeof value === "string"; }
function assertString(value: unknown): asserts value is string { if (!isString(value)) throw new Error(); }
function assertAny(value: unknown): asserts value { if (!value) throw new Error(); }
export { isString, assertString, assertAny };
//---
function over(x: string): string;
function over(x: number): number;
function over(x: any): any { return x; }
export { over };
//---
function bound(this: Window, x: number) { return this; }
function alone(this: void) {}
const o = { m(this: { n: number }, k: string) { return this.n + k; }, get p(): number { return 1; }, set p(v: number) {} };
export { bound, alone, o };
//---
try { risky(); } catch (error: unknown) { console.log((error as Error).message); }
try { risky(); } catch (e: any) {} finally {}
declare function risky(): void;
//---
const { a, b: { c } }: { a: number; b: { c: string } } = thing, [p, , q]: [number, number, string] = list;
function destructured({ x, y = 2 }: { x: number; y?: number }, [z]: number[] = []) { return x + y + z; }
declare const thing: any, list: any;
export { a, c, p, q, destructured };
//---
for (let i: number = 0, n: number = 10; i < n; i++) {}
for (const k in {} as Record<string, number>) {}
for (const [k, v] of Object.entries(obj as Record<string, number>)) console.log(k, v!);
for await (const chunk of stream as AsyncIterable<Uint8Array>) {}
declare const obj: unknown, stream: unknown;
//---
type A = { [K in keyof B as `get${Capitalize<string & K>}`]?: () => B[K] };
type B = { a: 1; b: 2 };
type C<T> = T extends Promise<infer U> ? U : T extends (infer E)[] ? E : never;
type D = typeof import("node:fs");
type E = abstract new (...args: any) => any;
type F = [first: string, second?: number, ...rest: boolean[]];
type G = unique symbol | `a-${string}` | -1 | 1n;
export const keep = 1;
//---
declare module "x" { export const y: number; }
declare global { interface Window { z: number } }
declare namespace N { const q: number; }
declare enum E { A }
declare const enum CE { B = 1 }
declare let l: number;
declare var v: string, w: number;
declare class K { m(): void; static s: number }
declare abstract class AK {}
declare function df(): void;
declare async function adf(): Promise<void>;
export const real = 1;
//---
namespace OnlyTypes { export interface A {} export type B = A; namespace Inner { type C = 1 } }
export namespace AlsoTypes { interface X {} }
export const z = 0;
//---
const fn = function <T extends object>(this: T, a: keyof T): T[typeof a] { return this[a]; };
const gen = function* <T>(xs: Iterable<T>): Generator<T, void, unknown> { for (const x of xs) yield x as T; };
export { fn, gen };
//---
const cb = (err: Error | null, data?: Buffer): void => {};
const one = (x: number) => x, two = async (x: string): Promise<void> => {}, three = x => x;
const obj = (): { a: number } => ({ a: 1 });
export { cb, one, two, three, obj };
//---
const x = cond ? (a as string) : (b as number);
const y = cond ? (a: number) => a : (b: string): string => b;
const z = cond ? <T,>(a: T) => a : null;
declare const cond: boolean, a: any, b: any;
//---
label: for (const x of xs as number[]) { if (x!) continue label; else break label }
switch (v as Kind) { case Kind.A as any: let s: string = "x"; break; default: type Local = 1; const l: Local = 1; }
declare const xs: any, v: any;
declare const Kind: any;
//---
(x as any) = 5;
(<any>x).foo = 1;
x! += 2;
x!++;
[(x as any), (y as any)] = [1, 2];
({ a: (x as any), b: y! } = obj as any);
delete (x as any).y;
declare let x: any, y: any, obj: any;
//---
const t = `a${(x as string)!}b${`c${y satisfies number}`}`;
const r = /a<b>/g.test(s as string), lt = a < b, gt = c > (d as number), both = a < b && c > d;
declare const x: any, y: any, s: any, a: number, b: number, c: number, d: any;
//---
const v = <string>foo;
const w = <const>["a", "b"];
const q = (<Foo<Bar>>x).y, r = -(<number>z), s = typeof <any>z;
declare const foo: any, x: any, z: any;
interface Foo<T> { y: T } interface Bar {}
//---
function f(a = <any>1, b: number = 2, { c }: { c?: number } = {}, [d]: [number?] = [], ...e: any[]) {}
function g(a?, b?: number, c: (x: number) => void = () => {}) {}
export { f, g };
//---
let greek: "αβγ" | "日本語" = "αβγ", after = 1;
/* ünïcode */ const emoji: "😀" = "😀"; function é(ñ: string): string { return ñ }
export { greek, after, emoji, é };
//---
let u: undefined | null; var n: never; let sym: symbol = Symbol(), big: bigint = 1n;
const o: { readonly [key: string]: unknown } = {}, t: readonly [a: 1, b?: 2] = [1];
let fnType: new () => object, k: keyof typeof o, c: Foo.Bar.Baz<string>["x"][];
declare namespace Foo.Bar { type Baz<T> = any }
export { u, n, sym, big, o, t, fnType, k, c };
//---
async function* pages<T>(url: string, init?: RequestInit): AsyncGenerator<T[], void, undefined> {
  let next: string | null = url;
  while (next) {
    const response: Response = await fetch(next!, init as RequestInit);
    yield (await response.json()) as T[];
    next = response.headers.get("link")?.match(/<([^>]+)>; rel="next"/)?.[1] ?? null;
  }
}
export { pages };
//---
const a = b ? (c) : d => e;
const f = b ? (c): d => e : g;
declare const b: any, c: any, g: any, e: any;
type d = any;
//---
const x = y as any as { a: string }["a"] | undefined ?? "z";
const n = (a as number) * (b as number) - c! / d!;
const i = "k" in (o as object) && o instanceof (C as any) && !(o as any)!;
declare const y: any, a: any, b: any, c: any, d: any, o: any, C: any;
