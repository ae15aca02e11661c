// expect: {"shuffled":[5,2,6,1,4,3],"near":true,"unseeded":true}
function mulberry32(a) {
  return () => {
    a |= 0; a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
const rand = mulberry32(42);
const shuffled = [1, 2, 3, 4, 5, 6].map((v) => [rand(), v]).sort((a, b) => a[0] - b[0]).map(([, v]) => v);
const m = Array.from({ length: 1000 }, rand).reduce((a, b) => a + b) / 1000;
({ shuffled, near: Math.abs(m - 0.5) < 0.05, unseeded: Math.random() < 1 });
