// oracle: hand: only a box refuses
// stdout: asking
// error: TypeError at 5
console.log("asking");
const res = await fetch("https://nobody.example.com/data.json");
await res.json();
