// expect: {"p":"/home/docs/file.tar.gz","base":"file.tar","ext":".gz","dir":"/home/docs","rel":"../other/x","res":"/a/c","norm":"/a/b","abs":[true,false],"parse":{"root":"/","dir":"/x","base":"y.txt","ext":".txt","name":"y"},"fmt":"/q/z.md","sep":"/"}
const path = require("path");
const p = path.join("/home", "user", "..", "docs", "./file.tar.gz");
({
  p,
  base: path.basename(p, ".gz"),
  ext: path.extname(p),
  dir: path.dirname(p),
  rel: path.relative("/home/docs", "/home/other/x"),
  res: path.resolve("/a", "b", "../c"),
  norm: path.normalize("/a//b/./c/.."),
  abs: [path.isAbsolute("/x"), path.isAbsolute("x")],
  parse: path.parse("/x/y.txt"),
  fmt: path.format({ dir: "/q", base: "z.md" }),
  sep: path.sep,
});
