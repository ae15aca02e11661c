// stdout: y = 2.000x + 0.060 (R² = 0.9987)
const points: [number, number][] = [[1, 2], [2, 4.1], [3, 6.2], [4, 7.9], [5, 10.1]];
const n = points.length;
const [sx, sy, sxy, sxx] = points.reduce(([a, b, c, d], [x, y]) => [a + x, b + y, c + x * y, d + x * x], [0, 0, 0, 0]);
const slope = (n * sxy - sx * sy) / (n * sxx - sx ** 2);
const intercept = (sy - slope * sx) / n;
const r2 = 1 - points.reduce((s, [x, y]) => s + (y - (slope * x + intercept)) ** 2, 0) / points.reduce((s, [, y]) => s + (y - sy / n) ** 2, 0);
console.log(`y = ${slope.toFixed(3)}x + ${intercept.toFixed(3)} (R² = ${r2.toFixed(4)})`);
