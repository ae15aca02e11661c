// expect: {"exists":true,"total":42}
import { writeFile, readFile } from "fs/promises";
import { existsSync } from "fs";

const file = "/workspace/report-node-fs.csv";
const rows = [["day", "visits"], ["mon", 12], ["tue", 30]];
await writeFile(file, rows.map((r) => r.join(",")).join("\n"));
const back = (await readFile(file, "utf8")).split("\n").map((l) => l.split(","));
({ exists: existsSync(file), total: back.slice(1).reduce((n, [, v]) => n + Number(v), 0) });
