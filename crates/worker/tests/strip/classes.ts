class A { public a: number = 1; private readonly b: string; protected static c?: boolean; d!: Date; readonly e = 5; #f: number = 1 }
//---
abstract class Shape {
  abstract area(): number;
  abstract name: string;
  protected abstract get kind(): string;
  constructor(x: number) {}
  describe(): string { return this.name; }
}
export default abstract class Base<T> extends Shape {}
//---
class Box<T extends object = {}> extends Base<T> implements I<T>, J {
  declare x: string;
  [key: string]: any;
  static [Symbol.iterator]: () => void;
  get value(): T { return this._v!; }
  set value(v: T) { this._v = v; }
  private _v?: T;
  async load<K extends keyof T>(key: K, options?: { force?: boolean }): Promise<T[K]> { return this.value[key]; }
  *[Symbol.iterator](): Iterator<T> {}
  static async *gen(): AsyncGenerator<number> {}
  optional?(): void {}
}
declare class Base<T> {} interface I<T> {} interface J {}
//---
class Over {
  constructor(x: string);
  constructor(x: number);
  constructor(x: any) {}
  m(a: string): void;
  m(a: number): void;
  m(a: any): void {}
  static s(): void;
  static s(): void {}
}
//---
const C = class<T> { x: T }, D = class Named extends (Mixin as any)<string> implements I {}, E = class implements I {};
declare const Mixin: any; interface I {}
//---
class Fields {
  a: number
  b?: string
  c = 1 as number
  d: string = "x"
  static e: number
  readonly f
  public g
  "quoted": number
  1: string
  [computed]: number
  #private?: string
}
declare const computed: string;
//---
class Semicolonless {
  a = 1
  declare b: number
  ['c'] = 2
  d = 3;
  [key: string]: any
  *e() {}
  f = 4
  private ['g'] = 5
  h = 6
  public *i() {}
  j = x as any
  ['k'] = 7
  l: string
  ['m'] = 8
}
declare const x: any;
//---
class Names {
  get: string
  set: number
  static: boolean
  async: string
  foo() {}
  public: string
  readonly: number = 1
  declare = 1
  abstract() {}
  override() {}
  type: string; of: number; private = 2; is?: boolean
}
//---
class Get {
  get: string
  foo() {}
}
class Set2 {
  static
  static: number
  bar() {}
}
//---
class Child extends Parent<string> {
  override readonly x: number = 1;
  protected override async run(): Promise<void> { await super.run!(); }
  public static override create<T>(this: new () => T): T { return new this(); }
  private get y(): number { return 1 }
  static readonly #z: number = 2;
  static { const t: number = this.#z; }
}
declare class Parent<T> { x: any; run(): any; static create(): any }
//---
class Ctor { private x: number; constructor(x: number, { y }: { y?: string } = {}, ...z: unknown[]) { this.x = x; } }
//---
export class Store<S extends Record<string, unknown>, A extends { type: string }> {
  private listeners = new Set<(state: S) => void>();
  constructor(reducer: (s: S, a: A) => S, initial: S) { this.reducer = reducer; this.state = initial }
  private reducer: (s: S, a: A) => S
  private state: S
  dispatch = (action: A): void => { this.state = this.reducer(this.state, action); this.listeners.forEach((l) => l(this.state)) }
  subscribe(listener: (state: S) => void): () => void { this.listeners.add(listener); return () => { this.listeners.delete(listener) } }
}
//---
class Arrow { handler = async <T,>(e: Event): Promise<T | undefined> => { return undefined as T | undefined }
  other = (x?: number): x is number => true
  third: () => void = () => {} }
//---
abstract class Only { abstract a: string; abstract b(): void; abstract c?: number }
export { Only };
//---
class Nested { inner = class { private y: number = 1 }; m() { class Local<T> implements X { z?: T } return Local<string> } }
interface X {}
