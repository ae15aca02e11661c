// error: SyntaxError at 4
const raw = "{'single': 'quotes'}";
let data;
data = JSON.parse(raw);
data.single;
