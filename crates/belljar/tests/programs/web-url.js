// expect: {"href":"https://user:pa%20ss@example.com:8443/a/c/d?y=%C3%BC&z=a+b#frag","host":"example.com:8443","hostname":"example.com","port":"8443","origin":"https://example.com:8443","path":"/a/c/d","search":"?y=%C3%BC&z=a+b","hash":"#frag","user":"user","y":"ü","rel":"https://x.test/a/q?k#h","can":[false,true],"def":"http://example.com/%7Efoo"}
const u = new URL("https://user:pa%20ss@example.com:8443/a/b/../c?x=1&y=%C3%BC#frag");
u.searchParams.append("z", "a b");
u.searchParams.delete("x");
u.pathname += "/d";
({
  href: u.href, host: u.host, hostname: u.hostname, port: u.port, origin: u.origin, path: u.pathname,
  search: u.search, hash: u.hash, user: u.username, y: u.searchParams.get("y"), rel: new URL("../q?k#h", "https://x.test/a/b/c").href,
  can: [URL.canParse("nope"), URL.canParse("https://ok.test")], def: new URL("HTTP://EXAMPLE.com:80/%7Efoo").href,
});
