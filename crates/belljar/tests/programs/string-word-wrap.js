// expect: 5
// stdout: Lorem ipsum dolor sit
// stdout: amet, consectetur
// stdout: adipiscing elit, sed do
// stdout: eiusmod tempor
// stdout: incididunt
function wrap(text, width) {
  const lines = [];
  let line = "";
  for (const word of text.split(/\s+/)) {
    if ((line + " " + word).trim().length > width) {
      lines.push(line);
      line = word;
    } else line = (line + " " + word).trim();
  }
  if (line) lines.push(line);
  return lines;
}
const text = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt";
console.log(wrap(text, 24).join("\n"));
wrap(text, 24).length;
