// A client with retries, pages and a cache, as one writes it for a service.
import type { RequestInit } from "node-fetch";
import { createHash, type Hash } from "node:crypto";

export interface Page<T> { items: readonly T[]; next?: string | null }
export type Result<T, E extends Error = Error> = { ok: true; value: T } | { ok: false; error: E };
type Headers = Record<string, string>;

interface Options {
  base: string;
  token?: string;
  retries?: number;
  wait?: (attempt: number) => number;
  onRetry?(error: unknown, attempt: number): void;
}

const DEFAULTS = { retries: 3, wait: (n: number): number => 2 ** n * 100 } as const satisfies Partial<Options>;

export class HttpError extends Error {
  override readonly name = "HttpError";
  readonly status: number
  readonly body?: unknown
  constructor(status: number, message: string, body?: unknown) {
    super(message)
    this.status = status
    this.body = body
  }
  get retryable(): boolean { return this.status >= 500 || this.status === 429 }
  static is(value: unknown): value is HttpError { return value instanceof HttpError }
}

abstract class Cache<K, V> {
  protected abstract read(key: K): V | undefined;
  protected abstract write(key: K, value: V): void;
  async get(key: K, make: () => Promise<V>): Promise<V> {
    const found = this.read(key);
    if (found !== undefined) return found;
    const value = await make();
    this.write(key, value);
    return value;
  }
}

class MemoryCache<V> extends Cache<string, V> {
  #map = new Map<string, { value: V; at: number }>();
  constructor(ttl: number = 60_000, now: () => number = Date.now) { super(); this.ttl = ttl; this.now = now }
  private ttl: number
  private now: () => number
  protected read(key: string): V | undefined {
    const entry = this.#map.get(key)
    if (!entry) return undefined
    return this.now() - entry.at < this.ttl ? entry.value : undefined
  }
  protected write(key: string, value: V): void { this.#map.set(key, { value, at: this.now() }) }
}

function digest(text: string): string;
function digest(text: string, raw: true): Uint8Array;
function digest(text: string, raw?: boolean): string | Uint8Array {
  const hash = createHash("sha256").update(text);
  return raw ? hash.digest() : hash.digest("hex");
}

export class Client<const Routes extends Record<string, string> = {}> {
  private readonly cache: Cache<string, unknown> = new MemoryCache<unknown>();
  private readonly options: Required<Omit<Options, "token" | "onRetry">> & Pick<Options, "token" | "onRetry">;

  constructor(options: Options, private_: boolean = false) {
    this.options = { ...DEFAULTS, ...options } as typeof this.options;
  }

  private headers(extra?: Headers): Headers {
    const { token } = this.options;
    return { accept: "application/json", ...(token ? { authorization: `Bearer ${token!}` } : {}), ...extra };
  }

  async request<T = unknown>(path: string, init: RequestInit & { query?: Record<string, string | number> } = {}): Promise<T> {
    const url = new URL(path, this.options.base);
    for (const [key, value] of Object.entries(init.query ?? {})) url.searchParams.set(key, String(value));
    let last: unknown;
    for (let attempt = 0; attempt <= this.options.retries; attempt++) {
      try {
        const response = await fetch(url, { ...(init as any), headers: this.headers(init.headers as Headers) });
        if (!response.ok) throw new HttpError(response.status, response.statusText, await response.json().catch(() => null));
        return (await response.json()) as T;
      } catch (error: unknown) {
        last = error;
        if (HttpError.is(error) && !error.retryable) throw error;
        this.options.onRetry?.(error, attempt);
        await new Promise<void>((resolve) => setTimeout(resolve, this.options.wait!(attempt)));
      }
    }
    throw last as Error;
  }

  async *pages<T>(path: string): AsyncGenerator<T, void, unknown> {
    let next: string | null | undefined = path;
    do {
      const page: Page<T> = await this.request<Page<T>>(next as string);
      yield* page.items;
      next = page.next;
    } while (next);
  }

  cached<T>(path: string): Promise<T> {
    return this.cache.get(digest(path), () => this.request<T>(path)) as Promise<T>;
  }
}

export async function attempt<T>(work: () => Promise<T>): Promise<Result<T>> {
  try { return { ok: true, value: await work() } } catch (error) { return { ok: false, error: error as Error } }
}

export function groupBy<T, K extends PropertyKey>(items: Iterable<T>, key: (item: T, index: number) => K): Partial<Record<K, T[]>> {
  const groups = Object.create(null) as Partial<Record<K, T[]>>;
  let index = 0;
  for (const item of items) (groups[key(item, index++)] ??= [])!.push(item);
  return groups;
}

const compose = <A, B, C>(f: (a: A) => B, g: (b: B) => C) => (a: A): C => g(f(a));
export const shout = compose<string, string, string>((s) => s.trim(), (s: string): string => s.toUpperCase() + "!");
let h: Hash;
//---
// Data wrangling with tuples, guards and overloads.
type Row = [name: string, amount: number, when: Date];
type Summary = { [month: string]: { total: number; count: number; names: Set<string> } };

const rows: Row[] = [["a", 1, new Date("2024-01-02")], ["b", 2.5, new Date("2024-02-03")], ["a", 4, new Date("2024-02-09")]];

function month(date: Date): `${number}-${number}` {
  return `${date.getUTCFullYear()}-${date.getUTCMonth() + 1}` as `${number}-${number}`;
}

const summary = rows.reduce<Summary>((all, [name, amount, when]) => {
  const entry = (all[month(when)] ??= { total: 0, count: 0, names: new Set<string>() });
  entry.total += amount
  entry.count++
  entry.names.add(name)
  return all
}, {} as Summary)

const isRow = (value: unknown): value is Row =>
  Array.isArray(value) && typeof value[0] === "string" && typeof value[1] === "number" && value[2] instanceof Date;

class Matrix<const R extends number, const C extends number> implements Iterable<number> {
  private constructor(readonly_: R, private_: C, cells: Float64Array) { this.rows = readonly_; this.cols = private_; this.cells = cells }
  readonly rows: R; readonly cols: C; private readonly cells: Float64Array;
  static of<R extends number, C extends number>(rows: R, cols: C, fill: (r: number, c: number) => number = () => 0): Matrix<R, C> {
    const cells = new Float64Array(rows * cols);
    for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) cells[r * cols + c] = fill(r, c)!;
    return new Matrix(rows, cols, cells);
  }
  at(r: number, c: number): number | undefined { return this.cells[r * this.cols + c] }
  times<N extends number>(other: Matrix<C, N>): Matrix<R, N> {
    return Matrix.of(this.rows, other.cols, (r, c) => {
      let sum = 0
      for (let k = 0; k < this.cols; k++) sum += this.at(r, k)! * other.at(k, c)!
      return sum
    })
  }
  *[Symbol.iterator](): Generator<number, void> { yield* this.cells }
}

const events: { [E in "open" | "close"]?: ((payload: E) => void)[] } = {};
export function on<E extends keyof typeof events>(event: E, handler: NonNullable<(typeof events)[E]>[number]): () => void {
  const list = (events[event] ??= []) as Array<typeof handler>;
  list.push(handler);
  return () => void list.splice(list.indexOf(handler) >>> 0, 1);
}

export const report = Object.entries(summary).map(([key, { total, count, names }]): string => `${key}: ${(total as number).toFixed(2)} in ${count} by ${[...names].join()}`);
export default Matrix.of(2, 2, (r, c) => (r === c ? 1 : 0)).times(Matrix.of(2, 2, (r, c) => r + c)) satisfies Matrix<2, 2>;
