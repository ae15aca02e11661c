// expect: {"slug":"creme-brulee-a-la-carte-unicode","same":true,"points":["68","1f600","69"],"upper":"STRASSE","at":"c","well":false}
const s = "Crème Brûlée à la carte — Ünïcödé";
const slug = s.normalize("NFD").replace(/[\u0300-\u036f]/g, "").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
const same = "\u00e9" === "e\u0301".normalize("NFC");
const points = [..."h\u{1F600}i"].map((c) => c.codePointAt(0).toString(16));
({ slug, same, points, upper: "straße".toUpperCase(), at: "abc".at(-1), well: "a\uD800".isWellFormed() });
