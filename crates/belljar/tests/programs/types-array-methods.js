// expect: {"at":4,"find":4,"idx":-1,"inc":true,"fill":[0,0,0],"of":[7],"copy":[4,5,3,4,5],"entries":[[0,"a"],[1,"b"]],"every":true,"flat":[1,2,[3]],"fm":[5,5,4,4],"join":"--1","last":2,"red":"415","slice":[1,4],"sort":"abc","chunk":[[1,2],[3,4]],"holes":2}
const xs = [5, 1, 4];
({
  at: xs.at(-1), find: xs.findLast((x) => x > 3), idx: xs.findLastIndex((x) => x === 9), inc: xs.includes(4), fill: Array(3).fill(0), of: Array.of(7),
  copy: [1, 2, 3, 4, 5].copyWithin(0, 3), entries: [...["a", "b"].entries()], every: xs.every(Number.isInteger), flat: [[1], [2, [3]]].flat(), fm: xs.flatMap((x) => (x > 1 ? [x, x] : [])), join: [null, undefined, 1].join("-"),
  last: xs.lastIndexOf(4), red: xs.reduceRight((a, x) => a + x, ""), slice: xs.slice(-2), sort: [..."bca"].sort().join(""), chunk: Array.from({ length: 2 }, (_, i) => [1, 2, 3, 4].slice(i * 2, i * 2 + 2)), holes: [, 1].length,
});
