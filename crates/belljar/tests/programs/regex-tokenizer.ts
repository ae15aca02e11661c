// expect: ["ident:x1","op:=","number:3.14","op:*","op:(","ident:y","op:+","number:42","op:)","op:>=","ident:z"]
type Token = { type: string; value: string };
const spec: [string, RegExp][] = [
  ["number", /^\d+(\.\d+)?/],
  ["ident", /^[A-Za-z_]\w*/],
  ["op", /^(==|<=|>=|[-+*/()=<>])/],
  ["space", /^\s+/],
];

function* tokenize(src: string): Generator<Token> {
  while (src) {
    const hit = spec.map(([type, re]) => ({ type, m: re.exec(src) })).find((x) => x.m);
    if (!hit?.m) throw new SyntaxError(`Unexpected character: ${src[0]}`);
    if (hit.type !== "space") yield { type: hit.type, value: hit.m[0] };
    src = src.slice(hit.m[0].length);
  }
}
Array.from(tokenize("x1 = 3.14 * (y + 42) >= z"), (t) => `${t.type}:${t.value}`);
