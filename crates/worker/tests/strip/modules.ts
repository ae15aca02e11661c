import type { A } from "a";
import type B from "b";
import type * as C from "c";
import { type D, e } from "d";
import f, { type G } from "f";
import { type H } from "h";
import "side-effect";
export const x: A | B | C.T | D | G | H = e(f);
//---
import used, { alsoUsed, neverUsed, OnlyType } from "x";
import * as ns from "ns";
import * as unusedNs from "unused";
import def from "def";
const v: OnlyType = used(alsoUsed, ns.a);
export default v;
//---
import Def, { named } from "both";
import Def2, { named2 } from "both2";
import Def3, * as ns3 from "both3";
import Def4, * as ns4 from "both4";
named(Def2, ns3.x, Def4);
let t: Def | Def3 | ns4.X;
//---
import { a as b, c as d, type e as f, g as h } from "names";
console.log(b, h as f);
type T = typeof d;
//---
export type { A } from "a";
export type * from "b";
export type * as C from "c";
export { type D, e } from "d";
export { f, type G } from "f";
export * from "g";
export * as h from "h";
export type I = string;
export interface J { x: number }
//---
interface Local { a: number }
type Alias = string;
const value = 1;
class Klass {}
export { Local, value, type Alias, Klass };
//---
interface OnlyType {}
export default OnlyType;
//---
export default interface Foo { x: number }
export const y = 1;
//---
export default function <T>(x: T): T { return x; }
//---
export default async function named<T>(x: T): Promise<T> { return x as T; }
//---
export default { a: 1 } as const;
//---
export default class<T> { x?: T }
//---
export declare const a: number;
export declare function f(): void;
export abstract class K { abstract x: number }
export const enumLike = { A: 1 } as const, other: number = 2;
export function g(x: string): void;
export function g(x: any) {}
export async function* h<T>(): AsyncGenerator<T> {}
//---
import { x } from "x";
export { x };
export { x as y };
//---
import { Shadow } from "x";
function f(Shadow: number) { return Shadow; }
let t: Shadow;
export { f };
//---
import json from "./data.json" with { type: "json" };
import { type T, v } from "./y" with { type: "x" };
console.log(json, v);
//---
import {} from "empty";
import {} from "empty2";
console.log(import.meta.url as string);
//---
const mod = await import("x") as typeof import("x");
const { default: d }: { default: number } = await import("y");
export { mod, d };
//---
import React, { useState, type FC } from "react";
const x: React.Node = useState<string>("a");
let y: FC;
//---
import { Base } from "base";
import { Iface } from "iface";
class A extends Base<string> implements Iface {}
export type { A };
//---
export as namespace Lib;
export const z = 1;
//---
import a, { b } from "x"
type X = a
b()
//---
import { type } from "x";
import { type as as_ } from "y";
console.log(type, as_);
//---
import type from "x";
console.log(type);
