// expect: {"value":"from catch","log":["try","catch","finally"]}
const log = [];
function f() {
  try {
    log.push("try");
    throw new Error("x");
  } catch {
    log.push("catch");
    return "from catch";
  } finally {
    log.push("finally");
  }
}
const value = f();
({ value, log });
