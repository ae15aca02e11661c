// expect: ["a","b","c","plain"]
// stdout: a,b,c,plain true
const sleep = (ms, v) => new Promise((r) => setTimeout(() => r(v), ms));
const started = Date.now();
const results = await Promise.all([sleep(30, "a"), sleep(10, "b"), sleep(20, "c"), "plain"]);
const elapsed = Date.now() - started;
console.log(results.join(","), elapsed < 1000);
results;
