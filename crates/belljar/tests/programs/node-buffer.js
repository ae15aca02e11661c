// expect: {"length":13,"hex":"48656c6c6f2c2057c3b6726c64","base64":"SGVsbG8sIFfDtnJsZA==","back":"Hello","fromHex":"Hi","joined":[1,2,9,9],"isBuffer":true,"equal":true,"bytes":2,"slice":"Hello","url":"Pz8-Pg"}
const buf = Buffer.from("Hello, Wörld", "utf8");
const joined = Buffer.concat([Buffer.from([1, 2]), Buffer.alloc(2, 9)]);
({
  length: buf.length,
  hex: buf.toString("hex"),
  base64: buf.toString("base64"),
  back: Buffer.from("SGVsbG8=", "base64").toString(),
  fromHex: Buffer.from("48690a", "hex").toString("utf8").trim(),
  joined: [...joined],
  isBuffer: Buffer.isBuffer(buf),
  equal: Buffer.from("a").equals(Buffer.from("a")),
  bytes: Buffer.byteLength("é"),
  slice: buf.slice(0, 5).toString(),
  url: Buffer.from("??>>").toString("base64url"),
});
