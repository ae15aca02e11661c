// expect: [{"event":"greeting","data":"hello"},{"event":"message","data":"one\ntwo"}]
async function* sse(res: Response) {
  const decoder = new TextDecoder();
  let buffer = "";
  for await (const chunk of res.body as any) {
    buffer += decoder.decode(chunk, { stream: true });
    let end: number;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const block = buffer.slice(0, end);
      buffer = buffer.slice(end + 2);
      const data = block.split("\n").filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trim());
      const event = block.match(/^event: (.*)$/m)?.[1] ?? "message";
      if (data.length) yield { event, data: data.join("\n") };
    }
  }
}
const got: unknown[] = [];
for await (const e of sse(await fetch("https://api.shop.test/feed"))) {
  if (e.data === "[DONE]") break;
  got.push(e);
}
got;
