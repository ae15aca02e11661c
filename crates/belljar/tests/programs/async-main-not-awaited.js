// expect: {"ok":true}
// stdout: start
// stdout: end
async function main() {
  console.log("start");
  await new Promise((r) => setTimeout(r, 10));
  console.log("end");
  return { ok: true };
}

main();
