// expect: {"value":"done","lines":["[0] attempt 1 failed: nope","[1] attempt 2 failed: nope"]}
interface Logger { log(msg: string): void }
class MemoryLogger implements Logger {
  readonly lines: string[] = [];
  log = (msg: string): void => { this.lines.push(`[${this.lines.length}] ${msg}`); };
}
class Service {
  constructor(private readonly logger: Logger, private readonly opts: { retries?: number } = {}) {}
  async run<T>(task: () => Promise<T>): Promise<T> {
    const { retries = 2 } = this.opts;
    for (let i = 0; ; i++) {
      try {
        return await task();
      } catch (e) {
        this.logger.log(`attempt ${i + 1} failed: ${(e as Error).message}`);
        if (i >= retries) throw e;
      }
    }
  }
}
const logger = new MemoryLogger();
let n = 0;
const value = await new Service(logger).run(async () => { if (++n < 3) throw new Error("nope"); return "done"; });
({ value, lines: logger.lines });
