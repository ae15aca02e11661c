// expect: "Hello World!"
function run(code, input = "") {
  const tape = new Uint8Array(300), stack = [], jump = {};
  [...code].forEach((c, i) => {
    if (c === "[") stack.push(i);
    if (c === "]") { const j = stack.pop(); jump[i] = j; jump[j] = i; }
  });
  let out = "", p = 0, at = 0;
  for (let i = 0; i < code.length; i++) {
    switch (code[i]) {
      case ">": p++; break;
      case "<": p--; break;
      case "+": tape[p]++; break;
      case "-": tape[p]--; break;
      case ".": out += String.fromCharCode(tape[p]); break;
      case ",": tape[p] = input.charCodeAt(at++) || 0; break;
      case "[": if (!tape[p]) i = jump[i]; break;
      case "]": if (tape[p]) i = jump[i]; break;
    }
  }
  return out;
}
run("++++++++[>++++[>++>+++>+++>+<<<<-]>+>+>->>+[<]<-]>>.>---.+++++++..+++.>>.<-.<.+++.------.--------.>>+.");
