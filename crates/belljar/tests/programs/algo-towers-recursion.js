// expect: {"moves":31,"first":"AC","ack":9,"deep":10,"flat":[1,2,3]}
const moves = [];
const hanoi = (n, a, b, c) => { if (n) { hanoi(n - 1, a, c, b); moves.push(a + c); hanoi(n - 1, b, a, c); } };
hanoi(5, "A", "B", "C");
const ackermann = (m, n) => (m === 0 ? n + 1 : n === 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1)));
const deepSum = (x) => (Array.isArray(x) ? x.reduce((s, y) => s + deepSum(y), 0) : x);
({ moves: moves.length, first: moves[0], ack: ackermann(2, 3), deep: deepSum([1, [2, [3, [4]]]]), flat: [1, [2, [3]]].flat(Infinity) });
