// expect: ["Grace","Margaret"]
// stdout: ┌─────────┬────┬────────────┬──────────┐
// stdout: │ (index) │ id │ name       │ role     │
// stdout: ├─────────┼────┼────────────┼──────────┤
// stdout: │ 0       │ 1  │ 'Ada'      │ 'admin'  │
// stdout: │ 1       │ 2  │ 'Grace'    │ 'editor' │
// stdout: │ 2       │ 3  │ 'Linus'    │ 'viewer' │
// stdout: │ 3       │ 4  │ 'Margaret' │ 'editor' │
// stdout: └─────────┴────┴────────────┴──────────┘
const users = await fetch("https://api.shop.test/users").then((r) => r.json());
const details = await Promise.all(
  users.map(async (u: { id: number }) => {
    const r = await fetch(`https://api.shop.test/users/${u.id}`);
    return r.json();
  }),
);
console.table(details.map(({ id, name, role }: any) => ({ id, name, role })));
details.filter((d: any) => d.role === "editor").map((d: any) => d.name);
