// expect: {"ok":2,"failed":2}
// stdout: job 1 ok
// stdout: ERR job 2 failed
// stdout: job 3 ok
// stdout: ERR job 4 failed
async function job(id: number): Promise<string> {
  await new Promise((r) => setTimeout(r, id * 2));
  if (id % 2 === 0) throw new Error(`job ${id} failed`);
  return `job ${id} ok`;
}
const settled = await Promise.allSettled([1, 2, 3, 4].map(job));
const summary = settled.map((s) => (s.status === "fulfilled" ? s.value : `ERR ${s.reason.message}`));
for (const line of summary) console.log(line);
({ ok: settled.filter((s) => s.status === "fulfilled").length, failed: settled.filter((s) => s.status === "rejected").length });
