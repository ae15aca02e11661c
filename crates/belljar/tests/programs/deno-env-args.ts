// oracle: deno
// expect: {"port":8000,"args":true,"cwd":"string","os":"linux","mem":"function"}
// stdout: Listening on 8000
const port = Number(Deno.env.get("PORT_NOT_SET") ?? 8000);
console.log(`Listening on ${port}`);
({ port, args: Array.isArray(Deno.args), cwd: typeof Deno.cwd(), os: Deno.build.os, mem: typeof Deno.memoryUsage });
