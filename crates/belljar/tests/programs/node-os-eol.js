// expect: {"eol":"\n","platform":"linux","tmp":"string","cpus":true,"type":"string"}
import os, { EOL } from "node:os";
({ eol: EOL, platform: os.platform(), tmp: typeof os.tmpdir(), cpus: os.cpus().length > 0, type: typeof os.type() });
