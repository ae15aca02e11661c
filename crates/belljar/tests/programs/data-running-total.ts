// expect: {"final":64.75,"worst":54.75}
// stdout: +  $100.00 => $100.00
// stdout: -   $20.00 => $80.00
// stdout: +   $50.25 => $130.25
// stdout: -   $75.50 => $54.75
// stdout: +   $10.00 => $64.75
const transactions = [100, -20, 50.25, -75.5, 10];
const balances = transactions.reduce<number[]>((acc, t) => [...acc, (acc.at(-1) ?? 0) + t], []);
const worst = Math.min(...balances);
const fmt = new Intl.NumberFormat("en-US", { style: "currency", currency: "USD" });
transactions.forEach((t, i) => {
  console.log(`${t >= 0 ? "+" : "-"}${fmt.format(Math.abs(t)).padStart(9)} => ${fmt.format(balances[i])}`);
});
({ final: balances.at(-1), worst });
