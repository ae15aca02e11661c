// expect: {"out":["A","B","C"],"written":[1],"text":"body"}
const stream = new ReadableStream({
  start(c) { for (const x of ["a", "b", "c"]) c.enqueue(x); c.close(); },
});
const upper = new TransformStream({ transform(chunk, c) { c.enqueue(chunk.toUpperCase()); } });
const out = [];
for await (const x of stream.pipeThrough(upper)) out.push(x);
const written = [];
const w = new WritableStream({ write(x) { written.push(x); } }).getWriter();
await w.write(1);
await w.close();
const text = await new Response(new ReadableStream({ start(c) { c.enqueue(new TextEncoder().encode("body")); c.close(); } })).text();
({ out, written, text });
