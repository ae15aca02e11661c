// expect: {"value":11,"curried":[6,6],"composed":11,"bound":3}
const counter = (start = 0) => { let n = start; return { inc: () => ++n, dec: () => --n, get value() { return n; } }; };
const curry = (fn: Function): any => function curried(this: unknown, ...args: unknown[]): unknown {
  return args.length >= fn.length ? fn.apply(this, args) : (...more: unknown[]) => curried.apply(this, [...args, ...more]);
};
const compose = <T>(...fns: ((x: T) => T)[]) => (x: T): T => fns.reduceRight((acc, f) => f(acc), x);
const c = counter(10);
c.inc(); c.inc(); c.dec();
const add3 = curry((a: number, b: number, d: number) => a + b + d);
({ value: c.value, curried: [add3(1)(2)(3), add3(1, 2)(3)], composed: compose<number>((x) => x + 1, (x) => x * 2)(5), bound: Math.max.bind(null, 3)(1, 2) });
