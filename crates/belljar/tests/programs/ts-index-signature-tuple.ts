// expect: {"rows":[{"id":1,"name":"a","tags":["x","y"]},{"id":2,"name":"b","tags":[]}],"total":"3","first":"a"}
type Row = [id: number, name: string, ...tags: string[]];
const rows: Row[] = [[1, "a", "x", "y"], [2, "b"]];
const index: { [id: number]: Row } = {};
for (const row of rows) index[row[0]] = row;
const unpack = ([id, name, ...tags]: Row) => ({ id, name, tags });
let total: number | bigint = 0n;
for (const key in index) total = (total as bigint) + BigInt(key);
return { rows: rows.map(unpack), total, first: index[1]?.[1] };
