// expect: [1,2,3,4,5,6]
const res = await fetch("https://api.shop.test/events");
const stream = res.body.pipeThrough(new TextDecoderStream());
let text = "";
for await (const part of stream) text += part;
text.trim().split("\n").map((l) => JSON.parse(l).seq);
