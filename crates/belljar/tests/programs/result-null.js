// expect: null
const missing = [1, 2].find((x) => x > 2) ?? null;
missing;
