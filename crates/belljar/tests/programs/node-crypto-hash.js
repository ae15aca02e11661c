// expect: {"sha":"b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9","md5":"900150983cd24fb0d6963f7d28e17f72","b64":"qZk+NkcGgWq6PiVxeFDCbJzQ2J0=","mac":"6e9ef29b75fffc5b7abae527d58fdadb2fe42e7219011976917343065f58ed4a","uuid":true,"random":16}
import { createHash, createHmac, randomUUID, randomBytes } from "node:crypto";

const sha = createHash("sha256").update("hello").update(" world").digest("hex");
const md5 = createHash("md5").update("abc").digest("hex");
const b64 = createHash("sha1").update("abc").digest("base64");
const mac = createHmac("sha256", "key").update("message").digest("hex");
const id = randomUUID();
({ sha, md5, b64, mac, uuid: /^[0-9a-f-]{36}$/.test(id), random: randomBytes(8).toString("hex").length });
