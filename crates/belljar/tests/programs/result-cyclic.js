// expect: {"name":"root","children":[{"name":"leaf","parent":"[Circular]"},{"name":"leaf","parent":"[Circular]"}]}
const parent = { name: "root", children: [] };
const child = { name: "leaf", parent };
parent.children.push(child, child);
parent;
