// expect: [["the",6],["dog",3],["fox",3],["quick",2],["a",1]]
// stdout: 1. the      ###### (6)
// stdout: 2. dog      ### (3)
// stdout: 3. fox      ### (3)
// stdout: 4. quick    ## (2)
// stdout: 5. a        # (1)
const text = `The quick brown fox jumps over the lazy dog. The dog sleeps; the fox runs away.
A quick reaction from the dog -- but the fox is gone.`;

const counts = new Map();
for (const word of text.toLowerCase().match(/[a-z]+/g)) {
  counts.set(word, (counts.get(word) || 0) + 1);
}
const top = [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, 5);
top.forEach(([w, n], i) => console.log(`${i + 1}. ${w.padEnd(8)} ${"#".repeat(n)} (${n})`));
top;
