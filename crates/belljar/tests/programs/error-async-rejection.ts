// stdout: ok
// error: RangeError at 7
// message: "no such id: 2"
async function load(id: number): Promise<string> {
  await new Promise((r) => setTimeout(r, 1));
  if (id > 1) {
    throw new RangeError(`no such id: ${id}`);
  }
  return "ok";
}

console.log(await load(1));
const second: string = await load(2);
console.log(second);
