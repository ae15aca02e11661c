// stdout: before
// error: TypeError at 8
interface Config { server?: { port: number } }
const config: Config = {};

function port(c: Config): number {
  // Forgot the optional chaining
  return c.server!.port;
}

console.log("before");
port(config);
console.log("after");
