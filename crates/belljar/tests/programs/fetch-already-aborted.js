// expect: "AbortError"
const reason = await fetch("https://api.shop.test/users", { signal: AbortSignal.abort() }).catch((e) => e.name);
reason;
