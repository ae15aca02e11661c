// expect: {"method":"POST","query":{"x":"1","y":"two words"},"id":"abc-123","tag":"one, two","type":"text/plain;charset=UTF-8","body":"plain text"}
const headers = new Headers({ "X-Request-Id": "abc-123" });
headers.append("X-Tag", "one");
headers.append("X-Tag", "two");
const req = new Request("https://api.shop.test/echo?x=1&y=two%20words", { method: "POST", headers, body: "plain text" });
const { method, query, headers: seen, body } = await (await fetch(req)).json();
return { method, query, id: seen["x-request-id"], tag: seen["x-tag"], type: seen["content-type"], body };
