// stdout: Ada
// error: HttpError at 13
// message: "Request failed with status 404"
class HttpError extends Error {
  constructor(readonly status: number, readonly body: unknown) {
    super(`Request failed with status ${status}`);
    this.name = "HttpError";
  }
}
async function getJson<T>(path: string): Promise<T> {
  const res = await fetch(`https://api.shop.test${path}`);
  if (!res.ok) {
    throw new HttpError(res.status, await res.json());
  }
  return res.json() as Promise<T>;
}
console.log(await getJson<{ name: string }>("/users/1").then((u) => u.name));
await getJson("/users/77");
