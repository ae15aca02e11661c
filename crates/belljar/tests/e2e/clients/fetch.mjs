// Fetches a URL with the fetch of Node or Deno.
const [url] = process.argv.slice(2);
const headers = { authorization: `Bearer ${process.env.API_TOKEN}` };
const response = await fetch(url, { headers });
if (!response.ok) throw new Error(`status ${response.status}`);
console.log(await response.text());
