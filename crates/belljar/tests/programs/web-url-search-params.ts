// expect: {"all":["1","3"],"obj":{"a":"3","b":"2","empty":"","plus":"x y"},"text":"a=1&a=3&b=two+words&empty=&plus=x+y","has":true,"size":5,"keys":["a","a","b","empty","plus"],"from":"k=v%26"}
const p = new URLSearchParams("?a=1&b=2&a=3&empty=&plus=x+y");
const obj = Object.fromEntries(p);
p.sort();
p.set("b", "two words");
return { all: p.getAll("a"), obj, text: p.toString(), has: p.has("empty"), size: p.size, keys: [...p.keys()], from: new URLSearchParams([["k", "v&"]]).toString() };
