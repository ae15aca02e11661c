// stdout: v1.2.0-beta < 1.2.0 < 1.10.0 < 2.0.0
// error: SyntaxError at 7
// message: "Invalid version: 1.0"
type Semver = { major: number; minor: number; patch: number; pre?: string };
const parse = (v: string): Semver => {
  const m = /^v?(\d+)\.(\d+)\.(\d+)(?:-([\w.]+))?$/.exec(v);
  if (!m) throw new SyntaxError(`Invalid version: ${v}`);
  const [, major, minor, patch, pre] = m;
  return { major: +major, minor: +minor, patch: +patch, pre };
};
const compare = (a: string, b: string): number => {
  const [x, y] = [parse(a), parse(b)];
  return x.major - y.major || x.minor - y.minor || x.patch - y.patch || Number(!x.pre) - Number(!y.pre) || (x.pre ?? "").localeCompare(y.pre ?? "");
};
console.log(["1.10.0", "1.2.0", "v1.2.0-beta", "2.0.0"].sort(compare).join(" < "));
compare("1.0", "1.0.0");
