// expect: {"fact":3628800,"unbound":"unbound: foo"}
type Atom = number | string;
type Sexp = Atom | Sexp[];
const tokenize = (s: string) => s.replace(/[()]/g, " $& ").trim().split(/\s+/);
function read(tokens: string[]): Sexp {
  const t = tokens.shift()!;
  if (t !== "(") return isNaN(+t) ? t : +t;
  const list: Sexp[] = [];
  while (tokens[0] !== ")") list.push(read(tokens));
  tokens.shift();
  return list;
}
type Env = { vars: Map<string, any>; up?: Env };
const find = (e: Env | undefined, k: string): Env => { if (!e) throw new ReferenceError(`unbound: ${k}`); return e.vars.has(k) ? e : find(e.up, k); };
function evaluate(x: Sexp, env: Env): any {
  if (typeof x === "number") return x;
  if (typeof x === "string") return find(env, x).vars.get(x);
  const [op, ...args] = x;
  switch (op) {
    case "define": return void env.vars.set(args[0] as string, evaluate(args[1], env));
    case "if": return evaluate(evaluate(args[0], env) ? args[1] : args[2], env);
    case "lambda": return (...vals: any[]) => evaluate(args[1], { vars: new Map((args[0] as string[]).map((p, i) => [p, vals[i]])), up: env });
    default: return evaluate(op, env)(...args.map((a) => evaluate(a, env)));
  }
}
const global: Env = { vars: new Map<string, any>([["+", (a: number, b: number) => a + b], ["*", (a: number, b: number) => a * b], ["-", (a: number, b: number) => a - b], ["<", (a: number, b: number) => a < b]]) };
const run = (s: string) => evaluate(read(tokenize(s)), global);
run("(define fact (lambda (n) (if (< n 2) 1 (* n (fact (- n 1))))))");
let unbound = "";
try { run("(foo 1)"); } catch (e) { unbound = (e as Error).message; }
return { fact: run("(fact 10)"), unbound };
