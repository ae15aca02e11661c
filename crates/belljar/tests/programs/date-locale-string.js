// stdout: 3/9/2026
// stdout: 3:04:05 PM
// stdout: March 9, 2026
// stdout: Monday
// stdout: 1,234,567.891
// stdout: 26%
// stdout: 42.00
const d = new Date("2026-03-09T15:04:05Z");
console.log(d.toLocaleDateString("en-US", { timeZone: "UTC" }));
console.log(d.toLocaleTimeString("en-US", { timeZone: "UTC" }));
console.log(d.toLocaleDateString("en-US", { year: "numeric", month: "long", day: "numeric", timeZone: "UTC" }));
console.log(d.toLocaleDateString("en-US", { weekday: "long", timeZone: "UTC" }));
console.log((1234567.891).toLocaleString("en-US"));
console.log((0.256).toLocaleString("en-US", { style: "percent" }));
console.log((42).toLocaleString("en-US", { minimumFractionDigits: 2 }));
