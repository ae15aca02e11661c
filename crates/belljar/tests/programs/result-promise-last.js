// expect: [2,3,4]
Promise.resolve([1, 2, 3]).then((xs) => xs.map((x) => x + 1));
