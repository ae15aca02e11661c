// Language tags and the data of each supported locale.
(function () {
  const TAG = /^(?:[a-z]{2,3}|[a-z]{5,8})(?:-[a-z]{4})?(?:-(?:[a-z]{2}|[0-9]{3}))?(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*(?:-[a-wy-z0-9](?:-[a-z0-9]{2,8})+)*(?:-x(?:-[a-z0-9]{1,8})+)?$/i;
  const cased = (tag) => {
    if (!TAG.test(tag)) throw new RangeError(`Invalid language tag: ${tag}`);
    let extended = false;
    return tag.split("-").map((it, at) => {
      if (at > 0 && it.length === 1) extended = true;
      if (at === 0 || extended) return it.toLowerCase();
      if (it.length === 4) return it[0].toUpperCase() + it.slice(1).toLowerCase();
      return it.length === 2 ? it.toUpperCase() : it.toLowerCase();
    }).join("-");
  };
  const canonical = (locales) => {
    if (locales === undefined) return [];
    if (locales === null) throw new TypeError("Incorrect locale information provided");
    const list = typeof locales === "string" || locales instanceof Locale ? [locales] : [...locales];
    return [...new Set(list.map((it) => {
      if (typeof it !== "string" && typeof it !== "object") throw new TypeError("Incorrect locale information provided");
      return cased(`${it}`);
    }))];
  };
  // Returns the first locale in the table, with or without its region, or en-US.
  const negotiate = (locales, table) => {
    for (const tag of canonical(locales)) {
      const plain = tag.replace(/-[ux]-.*$/, "");
      const base = plain.split("-")[0];
      if (plain in table) return { locale: plain, known: table[plain] };
      if (base in table) return { locale: plain, known: table[base] };
    }
    return { locale: "en-US", known: table.en };
  };
  const supported = (table) => (locales) => canonical(locales).filter((tag) => tag.replace(/-[ux]-.*$/, "") in table || tag.split("-")[0] in table);

  class Locale {
    #tag;
    constructor(tag, options = {}) {
      const [given] = canonical(`${tag}`);
      const base = given.replace(/-[ux]-.*$/, "").split("-");
      if (options.language) base[0] = options.language;
      const region = base.findIndex((it, at) => at > 0 && /^([A-Z]{2}|\d{3})$/.test(it));
      if (options.region) base.splice(region < 0 ? base.length : region, region < 0 ? 0 : 1, options.region);
      this.#tag = cased(base.join("-"));
    }
    get baseName() { return this.#tag; }
    get language() { return this.#tag.split("-")[0]; }
    get region() { return this.#tag.split("-").find((it, at) => at > 0 && /^([A-Z]{2}|\d{3})$/.test(it)); }
    get script() { return this.#tag.split("-").find((it, at) => at > 0 && it.length === 4); }
    toString() { return this.#tag; }
    get [Symbol.toStringTag]() { return "Intl.Locale"; }
  }
  return { canonical, negotiate, supported, Locale };
})
