// stdout: ticks 3
let ticks = 0;
await new Promise((resolve) => {
  const id = setInterval(() => {
    ticks++;
    if (ticks === 3) { clearInterval(id); resolve(); }
  }, 2);
});
const cancelled = setTimeout(() => console.log("never"), 5);
clearTimeout(cancelled);
console.log("ticks", ticks);
