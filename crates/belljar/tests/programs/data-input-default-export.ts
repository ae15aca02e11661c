// input: {"numbers":[3,1,2],"op":"sum"}
// expect: {"op":"sum","value":6}
type Args = { numbers: number[]; op: "sum" | "max" };

export default async function main({ numbers, op }: Args): Promise<{ op: string; value: number }> {
  switch (op) {
    case "sum":
      return { op, value: numbers.reduce((a, b) => a + b) };
    case "max":
      return { op, value: Math.max(...numbers) };
  }
}
