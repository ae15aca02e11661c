// expect: {"base":"server.log.gz","ext":".gz","name":"server.log","dir":"/var/log/app"}
import type { PathLike } from "node:fs";
import { basename, type ParsedPath, parse } from "node:path";

const file: PathLike = "/var/log/app/server.log.gz";
const parsed: ParsedPath = parse(String(file));
export type Unused = typeof parsed;
export interface AlsoUnused<T> { x: T }
return { base: basename(String(file)), ext: parsed.ext, name: parsed.name, dir: parsed.dir };
