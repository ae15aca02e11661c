// `Intl.PluralRules`, `Intl.RelativeTimeFormat`, `Intl.ListFormat` and related classes, in English.
(function (native, part) {
  const { canonical, Locale } = part("locales");
  const resolved = (locales) => canonical(locales).find((it) => it.startsWith("en")) ?? "en-US";
  const english = (locales) => canonical(locales).filter((it) => it.startsWith("en"));

  class PluralRules {
    #locale;
    #type;
    #number;
    constructor(locales, options = {}) {
      this.#locale = resolved(locales);
      this.#type = options?.type ?? "cardinal";
      this.#number = new (part("numbers").NumberFormat)("en", options ?? {});
    }
    select(value) {
      const text = this.#number.format(Math.abs(value)).replaceAll(",", "");
      if (this.#type === "cardinal") return text === "1" ? "one" : "other";
      if (!/^\d+$/.test(text) || /1[123]$/.test(text)) return "other";
      return { 1: "one", 2: "two", 3: "few" }[text.at(-1)] ?? "other";
    }
    resolvedOptions() { return { locale: this.#locale, type: this.#type, pluralCategories: this.#type === "cardinal" ? ["one", "other"] : ["few", "one", "two", "other"] }; }
    static supportedLocalesOf(locales) { return english(locales); }
  }

  const UNITS = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"];
  const SHORT = { second: "sec.", minute: "min.", hour: "hr.", day: "day", week: "wk.", month: "mo.", quarter: "qtr.", year: "yr." };
  const NARROW = { second: "s", minute: "min", hour: "h", day: "d", week: "w", month: "mo", quarter: "q", year: "y" };
  class RelativeTimeFormat {
    #locale;
    #style;
    #numeric;
    constructor(locales, options = {}) {
      this.#locale = resolved(locales);
      this.#style = options?.style ?? "long";
      this.#numeric = options?.numeric ?? "always";
    }
    format(value, unit) {
      const known = `${unit}`.replace(/s$/, "");
      if (!UNITS.includes(known)) throw new RangeError(`Invalid unit argument for format() '${unit}'`);
      const number = Number(value);
      if (!Number.isFinite(number)) throw new RangeError("The value must be a finite number");
      if (this.#numeric === "auto") {
        const near = this.#near(number, known);
        if (near !== undefined) return near;
      }
      const size = Math.abs(number);
      const text = new (part("numbers").NumberFormat)("en").format(size);
      const name = this.#style === "long" ? `${known}${size === 1 ? "" : "s"}` : this.#style === "narrow" ? NARROW[known] : known === "day" ? `day${size === 1 ? "" : "s"}` : known === "quarter" ? `qtr${size === 1 ? "" : "s"}.` : SHORT[known];
      const whole = this.#style === "narrow" ? `${text}${name}` : `${text} ${name}`;
      return number < 0 || Object.is(number, -0) ? `${whole} ago` : `in ${whole}`;
    }
    #near(number, unit) {
      if (unit === "day") return { "-1": "yesterday", 0: "today", 1: "tomorrow" }[number];
      if (unit === "second") return number === 0 ? "now" : undefined;
      const name = this.#style === "long" ? unit : SHORT[unit];
      if (["minute", "hour"].includes(unit)) return number === 0 ? `this ${unit}` : undefined;
      return { "-1": `last ${name}`, 0: `this ${name}`, 1: `next ${name}` }[number];
    }
    formatToParts(value, unit) { return [{ type: "literal", value: this.format(value, unit) }]; }
    resolvedOptions() { return { locale: this.#locale, style: this.#style, numeric: this.#numeric, numberingSystem: "latn" }; }
    static supportedLocalesOf(locales) { return english(locales); }
  }

  class ListFormat {
    #locale;
    #type;
    #style;
    constructor(locales, options = {}) {
      this.#locale = resolved(locales);
      this.#type = options?.type ?? "conjunction";
      this.#style = options?.style ?? "long";
    }
    formatToParts(list) {
      const all = [...list].map((it) => {
        if (typeof it !== "string") throw new TypeError("Iterable yielded a value that is not a string");
        return it;
      });
      const word = this.#type === "unit" ? "" : this.#type === "disjunction" ? "or" : this.#style === "long" ? "and" : this.#style === "short" ? "&" : "";
      const comma = this.#type === "unit" && this.#style === "narrow" ? " " : ", ";
      const last = word === "" ? comma : all.length === 2 ? ` ${word} ` : `, ${word} `;
      return all.flatMap((value, at) => {
        const element = { type: "element", value };
        return at === 0 ? [element] : [{ type: "literal", value: at === all.length - 1 ? last : comma }, element];
      });
    }
    format(list) { return this.formatToParts(list).map((it) => it.value).join(""); }
    resolvedOptions() { return { locale: this.#locale, type: this.#type, style: this.#style }; }
    static supportedLocalesOf(locales) { return english(locales); }
  }

  class DisplayNames {
    constructor() { throw new TypeError("Intl.DisplayNames is not available here: keep a table of the names that you need"); }
  }

  class Segmenter {
    #locale;
    #granularity;
    constructor(locales, options = {}) {
      this.#locale = resolved(locales);
      this.#granularity = options?.granularity ?? "grapheme";
    }
    segment(text) {
      const input = `${text}`;
      const by = {
        grapheme: /\r\n|\p{RI}\p{RI}|(?:\p{Emoji}\p{EMod}?\ufe0f?(?:\u200d\p{Emoji}\p{EMod}?\ufe0f?)+)|\P{M}[\p{M}\ufe0f\u200d\p{EMod}]*|./gsu,
        word: /[\p{L}\p{N}_]+(?:['’.][\p{L}\p{N}_]+)*[\p{M}]*|\s|./gsu,
        sentence: /[^.!?]+[.!?]*\s*|[.!?]+\s*/gsu,
      }[this.#granularity];
      const granularity = this.#granularity;
      return {
        *[Symbol.iterator]() {
          for (const it of input.matchAll(by)) {
            const found = { segment: it[0], index: it.index, input };
            yield granularity === "word" ? { ...found, isWordLike: /[\p{L}\p{N}]/u.test(it[0]) } : found;
          }
        },
        containing(index = 0) { return [...this].find((it) => index >= it.index && index < it.index + it.segment.length); },
      };
    }
    resolvedOptions() { return { locale: this.#locale, granularity: this.#granularity }; }
    static supportedLocalesOf(locales) { return english(locales); }
  }
  return { PluralRules, RelativeTimeFormat, ListFormat, DisplayNames, Segmenter, Locale };
})
