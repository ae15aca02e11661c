/** Beside the arguments of a request. */
interface BelljarOptions {
  headers?: Record<string, string>;
  signal?: AbortSignal;
}
/** A request by hand. An object as `body` is sent as JSON. */
interface BelljarRequest extends BelljarOptions {
  query?: Record<string, unknown> | URLSearchParams | string;
  body?: unknown;
}
/** What every declared service has. Paths start at its base address; credentials are added by themselves. */
interface BelljarApi {
  /** The whole answer, whatever its status. */
  fetch(path: string | URL, init?: RequestInit): Promise<Response>;
  /** The answer's body, parsed if it is JSON. Throws an ApiError with `status`, `body` and `headers` if it is no success. */
  get<T = any>(path: string, request?: BelljarRequest): Promise<T>;
  post<T = any>(path: string, request?: BelljarRequest): Promise<T>;
  put<T = any>(path: string, request?: BelljarRequest): Promise<T>;
  patch<T = any>(path: string, request?: BelljarRequest): Promise<T>;
  delete<T = any>(path: string, request?: BelljarRequest): Promise<T>;
  head(path: string, request?: BelljarRequest): Promise<Record<string, string>>;
}
