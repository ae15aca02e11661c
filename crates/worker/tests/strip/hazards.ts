foo
type x = 1;
(bar)
declare const foo: any, bar: any
//---
const a = 1
interface X {}
[1].forEach(x => x)
//---
let b = {}
type Y = 2
(function () {})()
//---
x as any
(1)
x satisfies any
[0]
declare const x: any
//---
const y = x as string
;[1, 2].map(String)
const z = x as string
`template`
declare const x: any
//---
function f(x: any) {
  return x as string
  (1)
}
function g(x: any) {
  if (x) throw x as Error
  [0]
}
//---
const f = (a: number): 
  Promise<void> => { return null! }
const g = async (
  a: string,
): Promise<{
  x: number
}> => ({ x: 1 })
const h = (a)
  : string => a
//---
const f = async <
  T,
>(x: T) => x
function g() {
  return <
    T
  >(x: T): T => x
}
//---
const h = <T
>(x: T): {
  a: T
} => ({ a: x })
//---
if (x) y as any
(z)
while (x) y as any
[z]
declare const x: any, y: any, z: any
//---
for (let i = 0 as number; i < (10 as number); i++) {}
for (let i = x as number, n = 10 as number; ; ) break
for (x as any; ; ) break
declare let x: any
//---
export default foo as any
(1)
declare const foo: any
//---
export const q = foo as any
(1)
declare const foo: any
//---
import a from "a"
type T = 1
(a)()
//---
throw x as any
type T = 1
//---
var a = b
declare const b: number
/re/g
//---
a = b
type T = 1
++c
declare let a: any, b: any, c: any
//---
const x = {
  a: 1 as number,
  b: [2 as any] as const,
}
const s = x as { a: number
  b: string }
(1)
//---
do x as any
while (y as boolean)
type Z = 1
(z)
declare const x: any, y: any, z: any
//---
const f = () => x as any
(1)
const g = () => { return x as any }
(1)
declare const x: any
//---
let x: string
(y)
let w: number
[y]
let v!: string
`y`
declare const y: any
//---
const fn = foo<string>
const fn2 = foo<string>;
declare const foo: any
//---
class A {
  x = y as any
  ['z']() {}
  w = y!
  v = <any>y
  u: string | undefined
  *g() {}
}
declare const y: any
//---
function over(a: string): void
function over(a: number): void
function over(a: any) {}
(over)
//---
{ type A = 1 }
{ interface B {} }
if (true) { type C = 1; let c: C = 1 } else { type D = 2 }
switch (1 as number) { case 1: type E = 1; default: interface F {} }
() => { type G = 1 }
//---
a /* c */ as /* d */ any /* e */
(1) // f
b // g
  as // h
  any
(2)
declare const a: any, b: any
//---
const value = (input as { a?: number }
  | { b?: string })
const other = input as
  | { a: 1 }
  | { b: 2 }
(value)
declare const input: any
//---
label: type
type T = 1
declare const type: any
//---
declare const type: any, as: any, declare: any, module: any, namespace: any, abstract: any, of: any, satisfies: any
type
declare
module
namespace
abstract
as as as
satisfies satisfies any
let async = 1, of2 = of
//---
const a = <T,>(x: T) => x
const b = async<T,>(x: T) => x
const c = { async<T>(x: T) {}, get<T>(x: T) {}, set<T>(x: T) {}, static<T>() {} }
