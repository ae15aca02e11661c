// expect: [{"ok":true,"value":14},{"ok":false,"error":"division by zero"}]
type Result<T, E = Error> = { ok: true; value: T } | { ok: false; error: E };
type Expr =
  | { kind: "num"; value: number }
  | { kind: "add" | "mul"; left: Expr; right: Expr }
  | { kind: "div"; left: Expr; right: Expr };

const evaluate = (e: Expr): Result<number, string> => {
  if (e.kind === "num") return { ok: true, value: e.value };
  const l = evaluate(e.left), r = evaluate(e.right);
  if (!l.ok) return l;
  if (!r.ok) return r;
  switch (e.kind) {
    case "add": return { ok: true, value: l.value + r.value };
    case "mul": return { ok: true, value: l.value * r.value };
    case "div": return r.value === 0 ? { ok: false, error: "division by zero" } : { ok: true, value: l.value / r.value };
    default: { const _exhaustive: never = e; return _exhaustive; }
  }
};
const num = (value: number): Expr => ({ kind: "num", value });
[evaluate({ kind: "add", left: num(2), right: { kind: "mul", left: num(3), right: num(4) } }), evaluate({ kind: "div", left: num(1), right: num(0) })];
