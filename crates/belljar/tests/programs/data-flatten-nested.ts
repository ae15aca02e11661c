// expect: {"user.name":"Ada","user.address.city":"London","user.address.zip":null,"items[0].id":1,"items[0].ok":true,"items[1].id":2,"items[1].ok":false,"count":2}
type Nested = { [key: string]: string | number | boolean | null | Nested | Nested[] };

function flatten(obj: Nested, prefix = ""): Record<string, unknown> {
  return Object.entries(obj).reduce((acc, [key, value]) => {
    const path = prefix ? `${prefix}.${key}` : key;
    if (Array.isArray(value)) {
      value.forEach((v, i) => Object.assign(acc, flatten(v as Nested, `${path}[${i}]`)));
    } else if (value && typeof value === "object") {
      Object.assign(acc, flatten(value, path));
    } else {
      acc[path] = value;
    }
    return acc;
  }, {} as Record<string, unknown>);
}

export default flatten({
  user: { name: "Ada", address: { city: "London", zip: null } },
  items: [{ id: 1, ok: true }, { id: 2, ok: false }],
  count: 2,
});
