// expect: {"count":6,"mean":18,"median":15.5,"stddev":12.3153,"p90":42}
// stdout: Statistics: { count: 6, mean: 18, median: 15.5, stddev: 12.3153, p90: 42 }
const samples: number[] = [4, 8, 15, 16, 23, 42];

const sum = (xs: number[]) => xs.reduce((a, b) => a + b, 0);
const mean = (xs: number[]): number => sum(xs) / xs.length;
const median = (xs: number[]): number => {
  const s = [...xs].sort((a, b) => a - b);
  const mid = Math.floor(s.length / 2);
  return s.length % 2 ? s[mid] : (s[mid - 1] + s[mid]) / 2;
};
const variance = (xs: number[]) => mean(xs.map((x) => (x - mean(xs)) ** 2));
const percentile = (xs: number[], p: number) => {
  const s = [...xs].sort((a, b) => a - b);
  return s[Math.ceil((p / 100) * s.length) - 1];
};

const stats = {
  count: samples.length,
  mean: mean(samples),
  median: median(samples),
  stddev: Number(Math.sqrt(variance(samples)).toFixed(4)),
  p90: percentile(samples, 90),
};
console.log("Statistics:", stats);
stats;
