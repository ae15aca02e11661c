// stdout: sync part
// stdout: from the IIFE
// stdout: late timer
(async () => {
  await new Promise((r) => setTimeout(r, 5));
  console.log("from the IIFE");
})();
setTimeout(() => console.log("late timer"), 20);
console.log("sync part");
