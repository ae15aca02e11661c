// expect: {"name":"Grace","failed":"User not found"}
async function gql<T>(query: string, variables: Record<string, unknown>): Promise<T> {
  const res = await fetch("https://api.shop.test/graphql", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ query, variables }),
  });
  const { data, errors } = await res.json();
  if (errors?.length) throw new Error(errors.map((e: { message: string }) => e.message).join("; "));
  return data;
}
const query = `query User($id: ID!) { user(id: $id) { name role } }`;
const ok = await gql<{ user: { name: string } }>(query, { id: 2 });
const failed = await gql(query, { id: 50 }).catch((e) => e.message);
({ name: ok.user.name, failed });
