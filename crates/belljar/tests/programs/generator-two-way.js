// expect: ["cleanup",5,15,"sum 15","cleanup","early"]
function* accumulator() {
  let total = 0;
  try {
    while (true) { const x = yield total; if (x === undefined) break; total += x; }
    return `sum ${total}`;
  } finally { log.push("cleanup"); }
}
const log = [];
const g = accumulator();
g.next();
log.push(g.next(5).value, g.next(10).value, g.next().value);
const h = accumulator();
h.next();
log.push(h.return("early").value);
log;
