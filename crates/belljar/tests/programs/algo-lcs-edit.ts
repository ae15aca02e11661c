// expect: "GTABQRTY"
const lcs = (a: string, b: string, memo = new Map<string, string>()): string => {
  if (!a || !b) return "";
  const key = `${a.length},${b.length}`;
  if (memo.has(key)) return memo.get(key)!;
  const r = a[0] === b[0] ? a[0] + lcs(a.slice(1), b.slice(1), memo)
    : [lcs(a.slice(1), b, memo), lcs(a, b.slice(1), memo)].reduce((x, y) => (y.length > x.length ? y : x));
  memo.set(key, r);
  return r;
};
lcs("AGGTABQWERTY", "GXTXAYBQRTY");
