enum Color { Red, Green = 5, Blue, Name = "n" }
export const out = [Color.Red, Color.Green, Color.Blue, Color.Name, Color[5]];
//---
const enum Flag { A = 1 << 0, B = 1 << 1, Both = A | B }
export const out = [Flag.A, Flag.B, Flag.Both];
//---
export enum Level { Low = "low", High = "high" }
export const all: string[] = Object.values(Level);
//---
namespace Geometry { export const pi = 3; export function area(r: number): number { return pi * r * r; } }
export const out = Geometry.area(2);
//---
namespace A.B { export const x = 1 } namespace A.B { export const y = A.B.x + 1 }
export const out = [A.B.x, A.B.y];
//---
class Point { constructor(public readonly x: number, private y: number = 2, protected z?: string) {} sum() { return this.x + this.y } }
export const out = [new Point(1).sum(), Object.keys(new Point(1, 2, "z"))];
//---
class Base { constructor(protected a: string) {} }
class Derived extends Base { b = 1; constructor(a: string, public c: number) { super(a); this.b = c } }
export const out = { ...new Derived("x", 7) };
//---
namespace N { export enum E { X = 3 } }
import E = N.E;
export const out = E.X;
//---
const make = () => <any>{ a: 1 };
export const out = make();
//---
function f() { return <number[]>
  [1, 2] }
export const out = f();
//---
enum Computed { A = "abc".length, B = A * 2, C }
enum Computed2 { X = Computed.B, Y = "x".length }
export const out = [Computed.A, Computed.B, Computed2.X, Computed2.Y];
//---
export class Service { private cache = new Map<string, number>(); constructor(private readonly size: number) {} get limit() { return this.size } }
export const out = new Service(4).limit;
//---
export const out = (() => { enum Local { A = 1 } const x: Local = Local.A; return x })();
