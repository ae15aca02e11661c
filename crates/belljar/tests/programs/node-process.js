// expect: {"env":"object","home":"default","argv":true,"platform":"linux","version":true,"cwd":"string","mem":"number","t":"bigint","tick":"ticked"}
// stdout: no newline; same line
// stderr: to stderr
process.stdout.write("no newline;");
process.stdout.write(" same line\n");
process.stderr.write("to stderr\n");
const t = process.hrtime.bigint();
({
  env: typeof process.env,
  home: process.env.NOT_SET_ANYWHERE ?? "default",
  argv: Array.isArray(process.argv),
  platform: process.platform,
  version: /^v\d+\./.test(process.version),
  cwd: typeof process.cwd(),
  mem: typeof process.memoryUsage().heapUsed,
  t: typeof t,
  tick: await new Promise((r) => process.nextTick(r, "ticked")),
});
