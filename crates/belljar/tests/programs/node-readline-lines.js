// expect: [3,3,5]
import fs from "node:fs";
import readline from "node:readline";

fs.writeFileSync("/tmp/lines.txt", "one\ntwo\nthree\n");
const rl = readline.createInterface({ input: fs.createReadStream("/tmp/lines.txt"), crlfDelay: Infinity });
const lines = [];
for await (const line of rl) lines.push(line.length);
lines;
