// expect: ["open","use","close","open","close","inside"]
const events = [];
async function withResource(fn) {
  events.push("open");
  try { return await fn(); } finally { await null; events.push("close"); }
}
await withResource(async () => events.push("use"));
await withResource(async () => { throw new Error("inside"); }).catch((e) => events.push(e.message));
events;
