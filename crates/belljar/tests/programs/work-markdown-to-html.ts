// expect: 5
// stdout: <h1>Title</h1>
// stdout: <p>Some <b>bold</b> and <i>it</i> with <code>code</code>.</p>
// stdout: <li>one</li>
// stdout: <li>two</li>
// stdout: <p><a href="https://x.test">link</a></p>
const md = `# Title
Some **bold** and *it* with \`code\`.

- one
- two

[link](https://x.test)`;
const inline = (s: string) => s.replace(/\*\*(.+?)\*\*/g, "<b>$1</b>").replace(/\*(.+?)\*/g, "<i>$1</i>").replace(/`(.+?)`/g, "<code>$1</code>").replace(/\[(.+?)\]\((.+?)\)/g, '<a href="$2">$1</a>');
const html = md.split(/\n{2,}|\n(?=[-#])|(?<=^#.*)\n/m).map((block) => {
  if (block.startsWith("# ")) return `<h1>${inline(block.slice(2))}</h1>`;
  if (block.startsWith("- ")) return `<li>${inline(block.slice(2))}</li>`;
  return `<p>${inline(block)}</p>`;
});
console.log(html.join("\n"));
html.length;
