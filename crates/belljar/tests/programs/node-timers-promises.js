// stdout: value true
import { setTimeout as delay } from "node:timers/promises";

const start = performance.now();
const v = await delay(10, "value");
const took = performance.now() - start;
console.log(v, took >= 9);
