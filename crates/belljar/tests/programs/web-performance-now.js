// expect: {"x":4999950000,"forward":true,"number":"number","origin":true,"now":true}
const t0 = performance.now();
let x = 0;
for (let i = 0; i < 1e5; i++) x += i;
const t1 = performance.now();
({ x, forward: t1 >= t0, number: typeof t0, origin: performance.timeOrigin > 1e12, now: Math.abs(Date.now() - (performance.timeOrigin + t1)) < 5000 });
