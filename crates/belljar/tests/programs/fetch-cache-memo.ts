// expect: {"names":["Ada","Grace","Ada","Linus","Grace","Ada"],"misses":3}
const cache = new Map<string, Promise<unknown>>();
let misses = 0;
function cached<T>(url: string): Promise<T> {
  if (!cache.has(url)) {
    misses++;
    cache.set(url, fetch(url).then((r) => r.json()));
  }
  return cache.get(url) as Promise<T>;
}
const urls = [1, 2, 1, 3, 2, 1].map((n) => `https://api.shop.test/users/${n}`);
const names = (await Promise.all(urls.map((u) => cached<{ name: string }>(u)))).map((u) => u.name);
({ names, misses });
