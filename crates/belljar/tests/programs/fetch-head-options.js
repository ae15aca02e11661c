// expect: {"status":200,"text":"","statuses":[true,true,false,false]}
const head = await fetch("https://api.shop.test/status/200", { method: "HEAD" });
const statuses = await Promise.all([200, 201, 404, 500].map(async (s) => (await fetch(`https://api.shop.test/status/${s}`)).ok));
({ status: head.status, text: await head.text(), statuses });
