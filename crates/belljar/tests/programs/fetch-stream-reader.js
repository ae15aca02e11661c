// expect: {"bytes":162,"many":true,"used":true}
const res = await fetch("https://api.shop.test/events");
const reader = res.body.getReader();
let bytes = 0, reads = 0;
while (true) {
  const { done, value } = await reader.read();
  if (done) break;
  reads++;
  bytes += value.byteLength;
}
({ bytes, many: reads > 1, used: res.bodyUsed });
