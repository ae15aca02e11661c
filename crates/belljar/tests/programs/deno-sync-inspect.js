// oracle: deno
// expect: {"t":"sync deno","gone":true}
Deno.writeTextFileSync("/tmp/s.txt", "sync deno");
const t = Deno.readTextFileSync("/tmp/s.txt");
Deno.removeSync("/tmp/s.txt");
let gone = false;
try { Deno.statSync("/tmp/s.txt"); } catch { gone = true; }
({ t, gone });
