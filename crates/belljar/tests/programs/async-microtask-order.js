// stdout: 1 sync
// stdout: 2 async body
// stdout: 3 end
// stdout: 4 microtask
// stdout: 5 then
// stdout: 5b after await
// stdout: 6 timeout
console.log("1 sync");
setTimeout(() => console.log("6 timeout"), 0);
queueMicrotask(() => console.log("4 microtask"));
Promise.resolve().then(() => console.log("5 then"));
(async () => {
  console.log("2 async body");
  await null;
  console.log("5b after await");
})();
console.log("3 end");
await new Promise((r) => setTimeout(r, 10));
