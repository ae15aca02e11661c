// stdout: 9,876,543.21
// stdout: -€1,234.50
// stdout: 3 12
// stdout: $1,000,000
// stdout: 1/1/1970
// stdout: abC 1,9,10
console.log(new Intl.NumberFormat("en-US").format(9876543.21));
console.log(new Intl.NumberFormat("en-US", { style: "currency", currency: "EUR" }).format(-1234.5));
console.log(new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 }).format(2.5), (12).toLocaleString());
console.log((1e6).toLocaleString("en-US", { style: "currency", currency: "USD", maximumFractionDigits: 0 }));
console.log(new Intl.DateTimeFormat("en-US", { timeZone: "UTC" }).format(new Date(0)));
console.log(["b", "a", "C"].sort((x, y) => x.localeCompare(y)).join(""), ["10", "9", "1"].sort(new Intl.Collator("en", { numeric: true }).compare).join(","));
