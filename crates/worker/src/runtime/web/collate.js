// `Intl.Collator`: compares texts by letters, then by accents, then by case.
(function (native, part) {
  // Order of character classes: whitespace, punctuation and symbols, digits, letters.
  const SIGNS = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";
  const weigh = (character) => {
    const base = character.normalize("NFD").replace(/\p{M}/gu, "") || character;
    const folded = base.toLowerCase();
    const code = folded.codePointAt(0);
    if (/\s/u.test(character)) return [0, code];
    const sign = SIGNS.indexOf(character);
    if (sign >= 0) return [1, sign];
    if (/\p{P}|\p{S}/u.test(character)) return [1, 100 + code];
    if (/\p{N}/u.test(character)) return [2, code];
    return [3, { "æ": 97.5, "ø": 111.5, "đ": 100.5, "ł": 108.5, "þ": 116.5 }[folded] ?? code];
  };
  const cache = new Map();
  const weight = (character) => {
    let known = cache.get(character);
    if (known === undefined) {
      known = { first: weigh(character), accent: character.normalize("NFD").slice(1).toLowerCase(), upper: character !== character.toLowerCase() };
      if (cache.size < 5000) cache.set(character, known);
    }
    return known;
  };
  const plain = (text) => /^[a-z]*$/.test(text);

  const compare = (left, right, { numeric = false, sensitivity = "variant", caseFirst = "false", ignorePunctuation = false } = {}) => {
    if (left === right) return 0;
    if (plain(left) && plain(right)) return left < right ? -1 : 1;
    let [a, b] = [left, right].map((it) => [...it.normalize("NFC").replaceAll("ß", "ss")]);
    if (ignorePunctuation) [a, b] = [a, b].map((list) => list.filter((it) => !/[\p{P}\s]/u.test(it)));
    let accents = 0;
    let cases = 0;
    let [i, j] = [0, 0];
    while (i < a.length && j < b.length) {
      if (numeric && /[0-9]/.test(a[i]) && /[0-9]/.test(b[j])) {
        let [x, y] = ["", ""];
        while (i < a.length && /[0-9]/.test(a[i])) x += a[i++];
        while (j < b.length && /[0-9]/.test(b[j])) y += b[j++];
        const [m, n] = [BigInt(x), BigInt(y)];
        if (m !== n) return m < n ? -1 : 1;
        continue;
      }
      const [x, y] = [weight(a[i++]), weight(b[j++])];
      if (x.first[0] !== y.first[0]) return x.first[0] < y.first[0] ? -1 : 1;
      if (x.first[1] !== y.first[1]) return x.first[1] < y.first[1] ? -1 : 1;
      if (accents === 0 && x.accent !== y.accent) accents = x.accent < y.accent ? -1 : 1;
      if (cases === 0 && x.upper !== y.upper) cases = x.upper ? 1 : -1;
    }
    if (i < a.length || j < b.length) return i < a.length ? 1 : -1;
    if (accents !== 0 && (sensitivity === "accent" || sensitivity === "variant")) return accents;
    if (cases !== 0 && (sensitivity === "case" || sensitivity === "variant")) return caseFirst === "upper" ? -cases : cases;
    const sharp = left.includes("ß") - right.includes("ß");
    return sensitivity === "variant" || sensitivity === "accent" ? sharp : 0;
  };

  const SENSITIVITY = ["base", "accent", "case", "variant"];
  class Collator {
    #locale;
    #options;
    constructor(locales, options = {}) {
      const given = options ?? {};
      const [tag] = part("locales").canonical(locales);
      this.#locale = tag ?? "en-US";
      const sensitivity = given.sensitivity ?? "variant";
      if (!SENSITIVITY.includes(sensitivity)) throw new RangeError(`Value ${sensitivity} out of range for Intl.Collator options property sensitivity`);
      const numeric = given.numeric ?? /-u-(?:.*-)?kn(?:-true)?(?:-|$)/.test(this.#locale);
      this.#options = { numeric: !!numeric, sensitivity, caseFirst: given.caseFirst ?? "false", ignorePunctuation: !!given.ignorePunctuation };
    }
    get compare() { return (left, right) => compare(`${left}`, `${right}`, this.#options); }
    resolvedOptions() { return { locale: this.#locale, usage: "sort", sensitivity: this.#options.sensitivity, ignorePunctuation: this.#options.ignorePunctuation, collation: "default", numeric: this.#options.numeric, caseFirst: this.#options.caseFirst }; }
    static supportedLocalesOf(locales) { return part("locales").canonical(locales).filter((it) => it.startsWith("en")); }
    get [Symbol.toStringTag]() { return "Intl.Collator"; }
  }
  const callable = new Proxy(Collator, { apply: (target, self, given) => new Collator(...given) });
  const localeCompare = function (target, other, locales, options) {
    if (locales === undefined && options === undefined) return compare(`${this}`, `${other}`);
    return new Collator(locales, options).compare(this, other);
  };
  return { Collator: callable, localeCompare };
})
