// expect: {"m":{"a":"1","b":[[1,2]]},"big":"1180591620717411303424","when":"1970-01-02T00:00:00.000Z","nan":null,"inf":null}
const m = new Map([["a", 1n], ["b", [new Set([1, 2])]]]);
({ m, big: 2n ** 70n, when: new Date(86400000), nothing: undefined, fn: () => 1, nan: NaN, inf: -Infinity });
