// expect: "SELECT id, name FROM users WHERE age > 18 AND active LIMIT 10"
class QueryBuilder {
  private parts: { select: string[]; from?: string; where: string[]; limit?: number } = { select: ["*"], where: [] };
  static create = (): QueryBuilder => new QueryBuilder();
  select(...cols: string[]) { this.parts.select = cols; return this; }
  from(table: string) { this.parts.from = table; return this; }
  where(cond: string) { this.parts.where.push(cond); return this; }
  set limit(n: number) { if (n < 0) throw new RangeError("limit"); this.parts.limit = n; }
  build(): string {
    const { select, from, where, limit } = this.parts;
    return [`SELECT ${select.join(", ")} FROM ${from}`, where.length && `WHERE ${where.join(" AND ")}`, limit && `LIMIT ${limit}`].filter(Boolean).join(" ");
  }
}
const q = QueryBuilder.create().select("id", "name").from("users").where("age > 18").where("active");
q.limit = 10;
q.build();
