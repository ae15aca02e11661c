// expect: {"id":"7","items":[["a","Pen"],["b","Ink"]],"n":3}
const xml = `<order id="7"><item sku="a">Pen</item><item sku="b">Ink</item><note/></order>`;
function parse(src) {
  const root = { children: [] }, stack = [root];
  for (const [, close, tag, attrs, self, text] of src.matchAll(/<(\/?)(\w+)([^>]*?)(\/?)>|([^<]+)/g)) {
    const top = stack.at(-1);
    if (text) top.text = (top.text ?? "") + text;
    else if (close) stack.pop();
    else {
      const node = { tag, attrs: Object.fromEntries([...attrs.matchAll(/(\w+)="([^"]*)"/g)].map((m) => [m[1], m[2]])), children: [] };
      top.children.push(node);
      if (!self) stack.push(node);
    }
  }
  return root.children[0];
}
const t = parse(xml);
({ id: t.attrs.id, items: t.children.filter((c) => c.tag === "item").map((c) => [c.attrs.sku, c.text]), n: t.children.length });
