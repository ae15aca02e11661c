// `Intl`: full support for English, numeric formats for some other languages. An unknown locale falls back to
// en-US, as the standard allows. `supportedLocalesOf` and `resolvedOptions` show the supported locales.
(function (native, part) {
  const numbers = () => part("numbers");
  const dates = () => part("dates");
  const words = () => part("words");

  const Intl = {
    getCanonicalLocales: (locales) => part("locales").canonical(locales),
    supportedValuesOf(key) {
      if (key === "currency") return Object.keys(numbers().SYMBOLS).sort();
      if (key === "timeZone") return ["UTC"];
      if (key === "calendar") return ["gregory"];
      if (key === "numberingSystem") return ["latn"];
      throw new RangeError(`Intl.supportedValuesOf: ${key} is not available here`);
    },
    get NumberFormat() { return numbers().NumberFormat; },
    get DateTimeFormat() { return dates().DateTimeFormat; },
    get Collator() { return part("collate").Collator; },
    get PluralRules() { return words().PluralRules; },
    get RelativeTimeFormat() { return words().RelativeTimeFormat; },
    get ListFormat() { return words().ListFormat; },
    get DisplayNames() { return words().DisplayNames; },
    get Segmenter() { return words().Segmenter; },
    get Locale() { return part("locales").Locale; },
    get DurationFormat() { throw new TypeError("Intl.DurationFormat is not available here: format the parts with Intl.NumberFormat"); },
  };
  Object.defineProperty(Intl, Symbol.toStringTag, { value: "Intl", configurable: true });

  const defaults = { toLocaleString: "any all", toLocaleDateString: "date date", toLocaleTimeString: "time time" };
  const dated = (name) => function (target, locales, options) {
    if (Number.isNaN(this.getTime())) return "Invalid Date";
    return dates().format(this, locales, options, defaults[name]);
  };
  const toLocaleString = function (target, locales, options) {
    if (target === Date.prototype) return dated("toLocaleString").call(this, target, locales, options);
    return new (numbers().NumberFormat)(locales, options).format(this.valueOf());
  };
  return { Intl, toLocaleString, toLocaleDateString: dated("toLocaleDateString"), toLocaleTimeString: dated("toLocaleTimeString") };
})
