// Fetches a URL with the fetch of Node or Deno.
const [url] = process.argv.slice(2);
const headers = { authorization: `Bearer ${process.env.API_TOKEN}` };
const answer = await fetch(url, { headers });
if (!answer.ok) throw new Error(`status ${answer.status}`);
console.log(await answer.text());
