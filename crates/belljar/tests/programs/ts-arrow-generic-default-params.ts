// expect: ["x",[0,1,2,3],[2,5,8],{"a":1,"c":2,"rest":{},"more":{}},{"a":1,"c":9,"rest":{"z":1},"more":{"y":3}}]
const identity = <T,>(x: T): T => x;
const range = (start: number, end?: number, step: number = 1): number[] => {
  if (end === undefined) [start, end] = [0, start];
  return Array.from({ length: Math.max(0, Math.ceil((end - start) / step)) }, (_, i) => start + i * step);
};
const opts = ({ a = 1, b: { c = 2, ...rest } = {} as any, ...more }: any = {}) => ({ a, c, rest, more });
[identity<string>("x"), range(4), range(2, 10, 3), opts(), opts({ b: { c: 9, z: 1 }, y: 3 })];
