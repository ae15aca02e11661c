// expect: {"formatted":"2026/01/05 09:07","valid":true,"invalid":true}
// stdout: 2026/01/05 09:07 Mon
// stdout: 2026-01-05T09:07:03.000Z Mon, 05 Jan 2026 09:07:03 GMT
// stdout: 2026-01-05T09:07:03.000Z 1767604023000 0
const d = new Date(Date.UTC(2026, 0, 5, 9, 7, 3));
const pad = (n: number) => String(n).padStart(2, "0");
const formatted = `${d.getUTCFullYear()}/${pad(d.getUTCMonth() + 1)}/${pad(d.getUTCDate())} ${pad(d.getUTCHours())}:${pad(d.getUTCMinutes())}`;
const names = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
console.log(formatted, names[d.getUTCDay()]);
console.log(d.toISOString(), d.toUTCString());
console.log(d.toJSON(), d.getTime(), d.getTimezoneOffset());
return { formatted, valid: !isNaN(d.getTime()), invalid: isNaN(new Date("nope").getTime()) };
