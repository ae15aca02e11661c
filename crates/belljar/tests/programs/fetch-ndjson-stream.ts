// expect: [1,2,3,4,5,6]
// stdout: 6 events
const res = await fetch("https://api.shop.test/events");
const decoder = new TextDecoder();
let buffer = "";
const events: { seq: number; type: string }[] = [];
for await (const chunk of res.body!) {
  buffer += decoder.decode(chunk, { stream: true });
  const lines = buffer.split("\n");
  buffer = lines.pop()!;
  for (const line of lines) if (line.trim()) events.push(JSON.parse(line));
}
console.log(`${events.length} events`);
events.map((e) => e.type.length);
