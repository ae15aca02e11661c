// expect: {"out":["00","01","10","11","b","a"],"kinds":["neg","zero","pos"],"n":6}
const out = [];
outer: for (let i = 0; i < 3; i++) {
  for (let j = 0; j < 3; j++) {
    if (j === 2) continue outer;
    if (i === 2) break outer;
    out.push(`${i}${j}`);
  }
}
const kind = (x) => {
  switch (true) {
    case x < 0: return "neg";
    case x === 0: return "zero";
    default: return "pos";
  }
};
let n = 0;
do { n += 2; } while (n < 5);
for (const k in { b: 1, a: 2 }) out.push(k);
({ out, kinds: [-1, 0, 1].map(kind), n });
