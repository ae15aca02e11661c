/** Options of a request. */
interface BelljarOptions {
  headers?: Record<string, string>;
  signal?: AbortSignal;
}
/** Query, body and options of a request. An object as `body` is sent as JSON. */
interface BelljarRequest extends BelljarOptions {
  query?: Record<string, unknown> | URLSearchParams | string;
  body?: unknown;
}
/** Methods of every declared service. Paths are relative to its base URL. Credentials are added automatically. */
interface BelljarApi {
  /** Returns the whole response, whatever its status. */
  fetch(path: string | URL, init?: RequestInit): Promise<Response>;
  /** Returns the response body, parsed if it is JSON. Throws an ApiError with `status`, `body` and `headers` on an error status. */
  get<T = any>(path: string, request?: BelljarRequest): Promise<T>;
  post<T = any>(path: string, request?: BelljarRequest): Promise<T>;
  put<T = any>(path: string, request?: BelljarRequest): Promise<T>;
  patch<T = any>(path: string, request?: BelljarRequest): Promise<T>;
  delete<T = any>(path: string, request?: BelljarRequest): Promise<T>;
  head(path: string, request?: BelljarRequest): Promise<Record<string, string>>;
}
