// expect: [{"date":"2026-01-05","time":"12:00:01","level":"INFO","message":"server started port=8080","index":0},{"date":"2026-01-05","time":"12:00:07","level":"ERROR","message":"db timeout after=3000ms","index":52},{"date":"2026-01-05","time":"12:01:00","level":"WARN","message":"slow query took=950ms","index":104}]
// stdout: [ 'INFO', 'ERROR', 'WARN' ]
const log = `2026-01-05 12:00:01 [INFO] server started port=8080
2026-01-05 12:00:07 [ERROR] db timeout after=3000ms
2026-01-05 12:01:00 [WARN] slow query took=950ms`;

const pattern = /^(?<date>\S+) (?<time>\S+) \[(?<level>\w+)\] (?<message>.+)$/gm;
const entries = [...log.matchAll(pattern)].map((m) => ({ ...m.groups, index: m.index }));
const levels = entries.map((e: any) => e.level);
console.log(levels);
entries;
