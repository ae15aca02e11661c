// expect: {"q":{"a":["1","2"],"b":"x y"},"s":"k=v%201&k=v2&n=3","u":"1","f":"/tmp/a b","p":"z=1"}
import querystring from "node:querystring";
import { URL, URLSearchParams, fileURLToPath } from "node:url";

const q = querystring.parse("a=1&b=x%20y&a=2");
({ q: { ...q }, s: querystring.stringify({ k: ["v 1", "v2"], n: 3 }), u: new URL("https://x.test/a?b=1").searchParams.get("b"), f: fileURLToPath("file:///tmp/a%20b"), p: new URLSearchParams({ z: "1" }).toString() });
