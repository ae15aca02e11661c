// input: {"users":[{"first":"Ada","last":"Lovelace","born":1815},{"first":"Alan","last":"Turing","born":1912}]}
// expect: [{"name":"Alan Turing","century":20},{"name":"Ada Lovelace","century":19}]
// The tool passes its arguments as `input`
const { users } = input as { users: { first: string; last: string; born: number }[] };
const result = users
  .map(({ first, last, born }) => ({ name: `${first} ${last}`, century: Math.ceil(born / 100) }))
  .toSorted((a, b) => b.century - a.century);
result;
