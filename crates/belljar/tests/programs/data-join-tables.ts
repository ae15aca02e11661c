// expect: {"left":[{"id":1,"name":"Ann","posts":["Hello","World"]},{"id":2,"name":"Ben","posts":[]},{"id":3,"name":"Cid","posts":["Again"]}],"orphans":["Orphan"]}
interface User { id: number; name: string }
interface Post { id: number; userId: number; title: string }

const users: User[] = [{ id: 1, name: "Ann" }, { id: 2, name: "Ben" }, { id: 3, name: "Cid" }];
const posts: Post[] = [
  { id: 10, userId: 1, title: "Hello" },
  { id: 11, userId: 1, title: "World" },
  { id: 12, userId: 3, title: "Again" },
  { id: 13, userId: 9, title: "Orphan" },
];

const byUser = new Map<number, Post[]>();
for (const post of posts) {
  const list = byUser.get(post.userId);
  if (list) list.push(post);
  else byUser.set(post.userId, [post]);
}

const left = users.map((u) => ({ ...u, posts: byUser.get(u.id)?.map((p) => p.title) ?? [] }));
const orphans = posts.filter((p) => !users.some((u) => u.id === p.userId)).map((p) => p.title);
return { left, orphans };
