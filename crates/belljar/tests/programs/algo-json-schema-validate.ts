// expect: {"errors":3,"ok":[]}
// stderr: $.id: below 1
// stderr: $.email: does not match
// stderr: $.tags[1]: not one of a|b
interface Schema { type?: string; properties?: Record<string, Schema>; required?: string[]; items?: Schema; minimum?: number; pattern?: string; enum?: unknown[] }
function validate(schema: Schema, value: any, path = "$"): string[] {
  const errors: string[] = [];
  const actual = Array.isArray(value) ? "array" : value === null ? "null" : typeof value;
  if (schema.type && actual !== schema.type) return [`${path}: expected ${schema.type}, got ${actual}`];
  if (schema.enum && !schema.enum.includes(value)) errors.push(`${path}: not one of ${schema.enum.join("|")}`);
  if (schema.minimum !== undefined && value < schema.minimum) errors.push(`${path}: below ${schema.minimum}`);
  if (schema.pattern && !new RegExp(schema.pattern).test(value)) errors.push(`${path}: does not match`);
  for (const key of schema.required ?? []) if (!(key in value)) errors.push(`${path}.${key}: missing`);
  for (const [key, sub] of Object.entries(schema.properties ?? {})) if (value && key in value) errors.push(...validate(sub, value[key], `${path}.${key}`));
  if (schema.items && Array.isArray(value)) value.forEach((v, i) => errors.push(...validate(schema.items!, v, `${path}[${i}]`)));
  return errors;
}
const schema: Schema = {
  type: "object", required: ["id", "email"],
  properties: { id: { type: "number", minimum: 1 }, email: { type: "string", pattern: "^\\S+@\\S+$" }, tags: { type: "array", items: { enum: ["a", "b"] } } },
};
const errors = validate(schema, { id: 0, email: "nope", tags: ["a", "z"] });
errors.forEach((e) => console.error(e));
({ errors: errors.length, ok: validate(schema, { id: 1, email: "a@b" }) });
