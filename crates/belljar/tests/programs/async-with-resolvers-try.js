// expect: ["resolved later","sync boom","thenable"]
const { promise, resolve } = Promise.withResolvers();
setTimeout(resolve, 1, "resolved later");
const tried = await Promise.try(() => { throw new Error("sync boom"); }).catch((e) => e.message);
[await promise, tried, await { then(r) { r("thenable"); } }];
