// expect: [{"name":"Smith, John","age":"42","city":"New York"},{"name":"Jane","age":"37","city":"Boston"},{"name":"Quote \"Q\" Man","age":"55","city":"Line\nbreak"}]
// stdout: Parsed 3 rows
// Parse CSV with quoted fields
const csv = `name,age,city
"Smith, John",42,"New York"
Jane,37,Boston
"Quote ""Q"" Man",55,"Line
break"`;

function parseCsv(text: string): Record<string, string>[] {
  const rows: string[][] = [];
  let row: string[] = [];
  let field = "";
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c === '"' && text[i + 1] === '"') { field += '"'; i++; }
      else if (c === '"') quoted = false;
      else field += c;
    } else if (c === '"') quoted = true;
    else if (c === ",") { row.push(field); field = ""; }
    else if (c === "\n") { row.push(field); rows.push(row); row = []; field = ""; }
    else field += c;
  }
  row.push(field);
  rows.push(row);
  const [head, ...rest] = rows;
  return rest.map((r) => Object.fromEntries(head.map((h, i) => [h, r[i]])));
}

const people = parseCsv(csv);
console.log(`Parsed ${people.length} rows`);
people;
