// stdout: scheduling
// error: TypeError at 5
console.log("scheduling");
setTimeout(() => {
  null.boom();
}, 5);
await new Promise((r) => setTimeout(r, 50));
console.log("not reached");
