// expect: ["a","b","c"]
// stdout: request failed <- TypeError socket closed
function low() { throw new TypeError("socket closed"); }
function high() {
  try { low(); } catch (cause) { throw new Error("request failed", { cause }); }
}
try {
  high();
} catch (e) {
  console.log(e.message, "<-", e.cause.name, e.cause.message);
}
let chain = [];
for (let e = new Error("a", { cause: new Error("b", { cause: "c" }) }); e; e = e.cause) chain.push(e.message ?? e);
chain;
