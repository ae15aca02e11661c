// `Intl.NumberFormat`.
(function (native, part) {
  const { negotiate, supported } = part("locales");
  const NBSP = "\u00a0";
  const THIN = "\u202f";
  const like = (over) => ({ decimal: ".", group: ",", percent: "%", before: true, gap: "", least: 1, sizes: [3], ...over });
  const comma = (over) => like({ decimal: ",", group: ".", percent: `${NBSP}%`, before: false, gap: NBSP, ...over });
  const TABLE = {
    en: like(), "en-IN": like({ sizes: [3, 2] }), "en-ZA": like({ decimal: ",", group: NBSP }),
    de: comma(), "de-AT": comma({ group: NBSP, before: true }), "de-CH": like({ group: "\u2019", before: true, gap: NBSP }),
    fr: comma({ group: THIN }), es: comma({ least: 2 }), "es-MX": like(), it: comma({ percent: "%", least: 1 }),
    nl: comma({ percent: "%", before: true }), pt: comma({ percent: "%", before: true }), "pt-PT": comma({ percent: "%", least: 2, group: NBSP }),
    sv: comma({ group: NBSP, minus: "−" }), nb: comma({ group: NBSP, minus: "−" }), no: comma({ group: NBSP, minus: "−" }), da: comma(), fi: comma({ group: NBSP, minus: "−" }), pl: comma({ group: NBSP, percent: "%", least: 2 }),
    cs: comma({ group: NBSP }), ru: comma({ group: NBSP }), uk: comma({ group: NBSP, percent: "%" }), tr: comma({ percent: "", before: true, gap: "" }), ja: like(), zh: like(), ko: like(),
  };
  const SYMBOLS = {
    USD: "$", EUR: "€", GBP: "£", JPY: "¥", INR: "₹", CNY: "CN¥", KRW: "₩", BRL: "R$", CAD: "CA$", AUD: "A$", MXN: "MX$", NZD: "NZ$",
    HKD: "HK$", TWD: "NT$", ILS: "₪", VND: "₫", PHP: "₱", XAF: "FCFA", XOF: "F\u202fCFA", XPF: "CFPF", XCD: "EC$",
  };
  const NAMES = {
    USD: "US dollar", EUR: "euro", GBP: "British pound", JPY: "Japanese yen", CHF: "Swiss franc", CAD: "Canadian dollar", AUD: "Australian dollar",
    INR: "Indian rupee", CNY: "Chinese yuan",
  };
  const OWN = { JP: "JPY", IN: "INR", CN: "CNY", CA: "CAD", AU: "AUD", MX: "MXN", NZ: "NZD", HK: "HKD", TW: "TWD" };
  const WHOLE = ["JPY", "KRW", "VND", "CLP", "ISK", "XAF", "XOF", "XPF", "PYG", "UGX", "RWF"];
  const UNITS = {
    kilometer: "km", meter: "m", centimeter: "cm", millimeter: "mm", mile: "mi", foot: "ft", inch: "in", yard: "yd", kilogram: "kg", gram: "g", pound: "lb",
    ounce: "oz", liter: "L", milliliter: "mL", gallon: "gal", byte: "byte", kilobyte: "kB", megabyte: "MB", gigabyte: "GB", terabyte: "TB", petabyte: "PB", bit: "bit",
    second: "sec", minute: "min", hour: "hr", day: "day", week: "wk", month: "mth", year: "yr", millisecond: "ms", celsius: "°C", fahrenheit: "°F", degree: "deg", percent: "%",
  };
  const LONG = { celsius: "degree Celsius", fahrenheit: "degree Fahrenheit", foot: "foot", inch: "inch", percent: "percent" };
  const PLURAL = { foot: "feet", inch: "inches", celsius: "degrees Celsius", fahrenheit: "degrees Fahrenheit", percent: "percent" };

  // Splits a number into its digits and the position of the point: 12.5 becomes "125" and 2.
  const exact = (value) => {
    const text = typeof value === "bigint" ? `${value < 0n ? -value : value}` : `${Math.abs(value)}`;
    const [, whole, rest = "", power = "0"] = /^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(text);
    const all = whole + rest;
    const digits = all.replace(/^0+/, "");
    if (digits === "") return { digits, point: 1 };
    return { digits, point: whole.length + Number(power) - (all.length - digits.length) };
  };
  // Rounds to `count` digits, half away from zero.
  const cut = ({ digits, point }, count, mode) => {
    if (count >= digits.length) return { digits, point };
    if (count < 0) return { digits: "", point };
    const kept = digits.slice(0, count);
    const next = digits.charCodeAt(count) - 48;
    const up = mode === "trunc" || mode === "floor" ? false : mode === "ceil" ? true
      : mode === "halfEven" && next === 5 && /^0*$/.test(digits.slice(count + 1)) ? (kept.charCodeAt(count - 1) - 48) % 2 === 1 : next >= 5;
    if (!up) return { digits: kept, point };
    const risen = `${BigInt(kept || "0") + 1n}`.padStart(count, "0");
    return risen.length > count ? { digits: risen, point: point + 1 } : { digits: risen, point };
  };

  const range = (value, least, most, name) => {
    const number = Number(value);
    if (!(number >= least && number <= most)) throw new RangeError(`${name} value is out of range.`);
    return Math.floor(number);
  };

  class NumberFormat {
    #locale;
    #known;
    #options;
    constructor(locales, given = {}) {
      const options = given ?? {};
      const { locale, known } = negotiate(locales, TABLE);
      this.#locale = locale;
      this.#known = known;
      const style = options.style ?? "decimal";
      if (!["decimal", "percent", "currency", "unit"].includes(style)) throw new RangeError(`Value ${style} out of range for Intl.NumberFormat options property style`);
      const currency = options.currency === undefined ? undefined : `${options.currency}`.toUpperCase();
      if (currency !== undefined && !/^[A-Z]{3}$/.test(currency)) throw new RangeError(`Invalid currency code : ${options.currency}`);
      if (style === "currency" && currency === undefined) throw new TypeError("Currency code is required with currency style.");
      if (style === "unit" && options.unit === undefined) throw new TypeError("Unit is required with unit style.");
      if (options.unit !== undefined && !`${options.unit}`.split("-per-").every((it) => it in UNITS)) throw new RangeError(`Invalid unit argument for Intl.NumberFormat() '${options.unit}'`);
      const notation = options.notation ?? "standard";
      const natural = style === "currency" ? (WHOLE.includes(currency) ? [0, 0] : [2, 2]) : style === "percent" ? [0, 0] : [0, 3];
      const least = options.minimumFractionDigits === undefined ? undefined : range(options.minimumFractionDigits, 0, 100, "minimumFractionDigits");
      const most = options.maximumFractionDigits === undefined ? undefined : range(options.maximumFractionDigits, 0, 100, "maximumFractionDigits");
      if (least !== undefined && most !== undefined && least > most) throw new RangeError("maximumFractionDigits value is out of range.");
      const significant = options.minimumSignificantDigits !== undefined || options.maximumSignificantDigits !== undefined;
      this.#options = {
        style, currency, notation,
        display: options.currencyDisplay ?? "symbol",
        accounting: options.currencySign === "accounting",
        compact: options.compactDisplay ?? "short",
        unit: options.unit, unitDisplay: options.unitDisplay ?? "short",
        grouping: options.useGrouping ?? (notation === "compact" ? "min2" : "auto"),
        sign: options.signDisplay ?? "auto",
        integers: options.minimumIntegerDigits === undefined ? 1 : range(options.minimumIntegerDigits, 1, 21, "minimumIntegerDigits"),
        least: least ?? Math.min(natural[0], most ?? natural[0]),
        most: most ?? Math.max(natural[1], least ?? 0),
        short: notation === "compact" && least === undefined && most === undefined && !significant,
        significant: significant ? [range(options.minimumSignificantDigits ?? 1, 1, 21, "minimumSignificantDigits"), range(options.maximumSignificantDigits ?? 21, 1, 21, "maximumSignificantDigits")] : null,
        mode: options.roundingMode ?? "halfExpand",
        trailing: options.trailingZeroDisplay ?? "auto",
      };
    }

    // Returns the integer and fraction digits as text.
    #round(number) {
      const { significant, least, most, short, mode, trailing, integers } = this.#options;
      let it = number;
      let zeros = least;
      if (significant) {
        it = cut(number, significant[1], mode);
        zeros = Math.max(0, significant[0] - it.point);
      } else if (short) it = number.point === 1 ? cut(number, 2, mode) : cut(number, Math.max(number.point, 1), mode);
      else it = cut(number, number.point + most, mode);
      const { digits, point } = it;
      const whole = (point > 0 ? digits.slice(0, point).padEnd(point, "0") : "").padStart(integers, "0");
      let fraction = (point >= 0 ? digits.slice(point) : "0".repeat(-point) + digits).replace(/0+$/, "");
      fraction = fraction.padEnd(significant || !short ? zeros : 0, "0");
      if (trailing === "stripIfInteger" && /^0*$/.test(fraction)) fraction = "";
      return { whole, fraction };
    }
    #grouped(whole) {
      const { grouping } = this.#options;
      const least = grouping === "min2" ? 2 : this.#known.least;
      if (grouping === false || grouping === "false" || whole.length < 3 + least) return [whole];
      const parts = [];
      let rest = whole;
      for (let at = 0; rest.length > 0; at++) {
        const size = this.#known.sizes[Math.min(at, this.#known.sizes.length - 1)];
        parts.unshift(rest.slice(-size));
        rest = rest.slice(0, -size);
      }
      return parts;
    }
    formatToParts(value = undefined) {
      const given = typeof value === "bigint" ? value : typeof value === "string" && /^-?\d{16,}$/.test(value) ? BigInt(value) : Number(value);
      const options = this.#options;
      const negative = given < 0 || Object.is(given, -0);
      const parts = [];
      const push = (type, text) => text !== "" && parts.push({ type, value: text });
      let isOne = false;
      let isZero = false;
      if (Number.isNaN(given)) push("nan", "NaN");
      else if (given === Infinity || given === -Infinity) push("infinity", "∞");
      else {
        let number = exact(given);
        if (options.style === "percent") number.point += 2;
        let power = 0;
        const scale = () => {
          if (options.notation === "scientific") return number.digits ? number.point - 1 : 0;
          if (options.notation === "engineering") return number.digits ? Math.floor((number.point - 1) / 3) * 3 : 0;
          return options.notation === "compact" && number.point > 3 ? Math.min(Math.floor((number.point - 1) / 3) * 3, 12) : 0;
        };
        power = scale();
        let rounded = this.#round({ ...number, point: number.point - power });
        if (options.notation === "compact" && rounded.whole.length > 3 && power < 12) {
          power += 3;
          rounded = this.#round({ ...number, point: number.point - power });
        }
        for (const [at, group] of this.#grouped(rounded.whole).entries()) {
          if (at > 0) push("group", this.#known.group);
          push("integer", group);
        }
        if (rounded.fraction) {
          push("decimal", this.#known.decimal);
          push("fraction", rounded.fraction);
        }
        isZero = /^0*$/.test(rounded.whole + rounded.fraction);
        isOne = rounded.whole === "1" && rounded.fraction === "" && power === 0;
        if (options.notation === "compact" && power > 0) {
          const at = power / 3 - 1;
          if (options.compact === "long") { push("literal", " "); push("compact", ["thousand", "million", "billion", "trillion"][at]); } else push("compact", "KMBT"[at]);
        } else if (options.notation !== "compact" && options.notation !== "standard") {
          push("exponentSeparator", "E");
          if (power < 0) push("exponentMinusSign", "-");
          push("exponentInteger", `${Math.abs(power)}`);
        }
      }
      return this.#dressed(parts, negative, isZero, isOne);
    }
    #dressed(number, negative, isZero, isOne) {
      const { style, sign, accounting } = this.#options;
      const shows = sign === "never" ? "" : negative
        ? (sign === "exceptZero" || sign === "negative") && isZero ? "" : "-"
        : sign === "always" || (sign === "exceptZero" && !isZero) ? "+" : "";
      const mark = shows === "-" ? [{ type: "minusSign", value: this.#known.minus ?? "-" }] : shows === "+" ? [{ type: "plusSign", value: "+" }] : [];
      if (style === "percent") {
        if (this.#known.percent === "") return [...mark, { type: "percentSign", value: "%" }, ...number];
        const gap = this.#known.percent.slice(0, -1);
        return [...mark, ...number, ...(gap ? [{ type: "literal", value: gap }] : []), { type: "percentSign", value: "%" }];
      }
      if (style === "unit") return [...mark, ...number, ...this.#unit(isOne)];
      if (style !== "currency") return [...mark, ...number];
      const { currency, display } = this.#options;
      if (display === "name") {
        const name = NAMES[currency];
        const text = name === undefined ? currency : isOne ? name : /yen|yuan$/.test(name) ? name : `${name}s`;
        return [...mark, ...number, { type: "literal", value: " " }, { type: "currency", value: text }];
      }
      const region = this.#locale.split("-")[1];
      const own = OWN[region] === currency || (this.#locale.startsWith("ja") && currency === "JPY") || (this.#locale.startsWith("zh") && currency === "CNY");
      const symbol = display === "code" ? currency : own || display === "narrowSymbol" ? (SYMBOLS[currency] ?? currency).replace(/^(?:CN|CA|MX|NZ|HK|NT|EC|A)(?=[$¥])/, "") : SYMBOLS[currency] ?? currency;
      const shown = { type: "currency", value: symbol };
      const gap = (text) => (text ? [{ type: "literal", value: text }] : []);
      if (!this.#known.before) return [...mark, ...number, ...gap(this.#known.gap), shown];
      const inner = [shown, ...gap(this.#known.gap || (/[A-Za-z]$/.test(symbol) ? NBSP : "")), ...number];
      if (accounting && shows === "-") return [{ type: "literal", value: "(" }, ...inner, { type: "literal", value: ")" }];
      return [...mark, ...inner];
    }
    #unit(isOne) {
      const { unit, unitDisplay } = this.#options;
      const [of, per] = unit.split("-per-");
      if (unitDisplay === "long") {
        const one = LONG[of] ?? of;
        const many = isOne ? one : PLURAL[of] ?? `${one}s`;
        return [{ type: "literal", value: " " }, { type: "unit", value: per ? `${many} per ${per}` : many }];
      }
      const narrow = unitDisplay === "narrow";
      const short = unit === "mile-per-hour" ? "mph" : unit === "mile-per-gallon" ? "mpg" : null;
      const plain = UNITS[of] + (!isOne && !narrow && ["day", "week", "month", "year"].includes(of) ? "s" : "");
      const tight = narrow || ["celsius", "fahrenheit", "percent"].includes(of);
      const text = short ?? (per ? `${UNITS[of]}/${{ second: "s", hour: "h" }[per] ?? UNITS[per]}` : narrow ? { day: "d", hour: "h", minute: "m", second: "s", celsius: "°C", fahrenheit: "°" }[of] ?? UNITS[of] : plain);
      return [...(tight ? [] : [{ type: "literal", value: " " }]), { type: "unit", value: text }];
    }
    get format() { return (value) => this.formatToParts(value).map((it) => it.value).join(""); }
    formatRange(from, to) {
      const [a, b] = [this.format(from), this.format(to)];
      return a === b ? `~${a}` : `${a} – ${b}`;
    }
    resolvedOptions() {
      const it = this.#options;
      return {
        locale: this.#locale, numberingSystem: "latn", style: it.style,
        ...(it.style === "currency" ? { currency: it.currency, currencyDisplay: it.display, currencySign: it.accounting ? "accounting" : "standard" } : {}),
        ...(it.style === "unit" ? { unit: it.unit, unitDisplay: it.unitDisplay } : {}),
        minimumIntegerDigits: it.integers,
        ...(it.significant ? { minimumSignificantDigits: it.significant[0], maximumSignificantDigits: it.significant[1] } : { minimumFractionDigits: it.least, maximumFractionDigits: it.most }),
        useGrouping: it.grouping, notation: it.notation, ...(it.notation === "compact" ? { compactDisplay: it.compact } : {}), signDisplay: it.sign,
        roundingIncrement: 1, roundingMode: it.mode, roundingPriority: "auto", trailingZeroDisplay: it.trailing,
      };
    }
    static supportedLocalesOf(locales) { return supported(TABLE)(locales); }
    get [Symbol.toStringTag]() { return "Intl.NumberFormat"; }
  }
  // Callable without `new`, as the standard requires.
  const callable = new Proxy(NumberFormat, { apply: (target, self, given) => new NumberFormat(...given) });
  return { NumberFormat: callable, SYMBOLS };
})
