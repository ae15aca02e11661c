// error: TypeError at 4
const base = "not a url";
let url;
url = new URL("/path", base);
url.href;
