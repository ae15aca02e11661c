// oracle: deno
// expect: {"text":"alpha\nbeta\n","sum":6,"names":["a.txt","b.bin"],"size":3,"error":"NotFound"}
await Deno.mkdir("/tmp/deno-data", { recursive: true });
await Deno.writeTextFile("/tmp/deno-data/a.txt", "alpha\n");
await Deno.writeTextFile("/tmp/deno-data/a.txt", "beta\n", { append: true });
await Deno.writeFile("/tmp/deno-data/b.bin", new Uint8Array([1, 2, 3]));
const text = await Deno.readTextFile("/tmp/deno-data/a.txt");
const bytes = await Deno.readFile("/tmp/deno-data/b.bin");
const names: string[] = [];
for await (const entry of Deno.readDir("/tmp/deno-data")) if (entry.isFile) names.push(entry.name);
const info = await Deno.stat("/tmp/deno-data/b.bin");
await Deno.remove("/tmp/deno-data", { recursive: true });
let error = "";
try {
  await Deno.readTextFile("/tmp/deno-data/a.txt");
} catch (e) {
  if (e instanceof Deno.errors.NotFound) error = "NotFound";
}
return { text, sum: bytes.reduce((a: number, b: number) => a + b, 0), names: names.sort(), size: info.size, error };
