// expect: {"a":1,"b":[1,2],"c":6,"d":7,"e":7}
function parse(value: string): number;
function parse(value: string[]): number[];
function parse(value: string | string[]): number | number[] {
  return Array.isArray(value) ? value.map(Number) : Number(value);
}
interface Counter { count: number; inc(this: Counter, by?: number): number }
const counter: Counter = { count: 0, inc(this: Counter, by: number = 1) { return (this.count += by); } };
counter.inc();
counter.inc(5);
let maybe: { deep?: { value?: number } } | null = { deep: { value: 7 } };
({ a: parse("1"), b: parse(["1", "2"]), c: counter.count, d: maybe!.deep!.value!, e: maybe?.deep?.value ?? -1 });
