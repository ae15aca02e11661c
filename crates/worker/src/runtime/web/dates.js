// `Intl.DateTimeFormat`: English words, and numeric formats of some other languages.
(function (native, part) {
  const { negotiate, supported } = part("locales");
  const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
  const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
  // Per language: the order of day, month and year, their padding, and a 12 or 24 hour clock.
  const TABLE = {
    en: { order: "m/d/y", hours: 12, words: "US" }, "en-US": { order: "m/d/y", hours: 12, words: "US" },
    "en-GB": { order: "dd/mm/y", hours: 24, words: "GB", small: true }, "en-AU": { order: "dd/mm/y", hours: 12, words: "GB", small: true }, "en-NZ": { order: "d/mm/y", hours: 12, words: "GB", small: true },
    "en-IE": { order: "d/m/y", hours: 24, words: "GB", small: true }, "en-IN": { order: "d/m/y", hours: 12, words: "GB", small: true }, "en-ZA": { order: "y/mm/dd", hours: 24, words: "GB" }, "en-CA": { order: "y-mm-dd", hours: 12, words: "US", small: "a.m." },
    de: { order: "d.m.y", hours: 24 }, fr: { order: "dd/mm/y", hours: 24, join: " " }, es: { order: "d/m/y", hours: 24, short: true }, it: { order: "dd/mm/y", hours: 24 }, nl: { order: "d-m-y", hours: 24 },
    pt: { order: "dd/mm/y", hours: 24 }, sv: { order: "y-mm-dd", hours: 24, join: " " }, da: { order: "d.m.y", hours: 24, join: " " }, pl: { order: "d.mm.y", hours: 24 },
    ja: { order: "y/m/d", hours: 24, join: " ", short: true }, zh: { order: "y/m/d", hours: 24, join: " " },
  };
  const FIELDS = ["weekday", "year", "month", "day"];
  const CLOCK = ["hour", "minute", "second", "fractionalSecondDigits", "dayPeriod"];

  // Returns the date and time fields of a timestamp in a zone.
  const moment = (date, zone) => {
    let at = date;
    let offset = -date.getTimezoneOffset() * 60;
    let abbreviation = offset === 0 ? "UTC" : null;
    if (zone !== undefined) {
      [offset, abbreviation] = part("zones").offset(zone, Math.floor(date.getTime() / 1000));
    }
    at = new Date(date.getTime() + offset * 1000);
    return {
      year: at.getUTCFullYear(), month: at.getUTCMonth(), day: at.getUTCDate(), weekday: at.getUTCDay(), hour: at.getUTCHours(),
      minute: at.getUTCMinutes(), second: at.getUTCSeconds(), milli: at.getUTCMilliseconds(), offset, abbreviation,
    };
  };
  const two = (value) => `${value}`.padStart(2, "0");
  const digits = (value, style) => (style === "2-digit" ? two(value % 100) : `${value}`);
  const gmt = (offset, long) => {
    if (offset === 0) return "GMT";
    const [hours, minutes] = [Math.trunc(Math.abs(offset) / 3600), Math.trunc((Math.abs(offset) % 3600) / 60)];
    const sign = offset < 0 ? "-" : "+";
    return long ? `GMT${sign}${two(hours)}:${two(minutes)}` : `GMT${sign}${hours}${minutes ? `:${two(minutes)}` : ""}`;
  };
  const STYLES = {
    full: { weekday: "long", year: "numeric", month: "long", day: "numeric" }, long: { year: "numeric", month: "long", day: "numeric" },
    medium: { year: "numeric", month: "short", day: "numeric" }, short: { year: "2-digit", month: "numeric", day: "numeric" },
  };
  const TIMES = {
    full: { hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "long" }, long: { hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "short" },
    medium: { hour: "numeric", minute: "2-digit", second: "2-digit" }, short: { hour: "numeric", minute: "2-digit" },
  };
  const OF = { weekday: "narrow short long", era: "narrow short long", year: "2-digit numeric", month: "2-digit numeric narrow short long", day: "2-digit numeric", hour: "2-digit numeric", minute: "2-digit numeric", second: "2-digit numeric", timeZoneName: "short long shortOffset longOffset shortGeneric longGeneric", dateStyle: "full long medium short", timeStyle: "full long medium short" };

  class DateTimeFormat {
    #locale;
    #known;
    #wants;
    #zone;
    #styled = null;
    constructor(locales, given = {}, [need, fill] = ["any", "date"]) {
      const options = given ?? {};
      const wants = {};
      for (const [name, allowed] of Object.entries(OF)) {
        if (options[name] === undefined) continue;
        if (!allowed.split(" ").includes(`${options[name]}`)) throw new RangeError(`Value ${options[name]} out of range for Intl.DateTimeFormat options property ${name}`);
        wants[name] = `${options[name]}`;
      }
      if (options.fractionalSecondDigits !== undefined) wants.fractionalSecondDigits = Number(options.fractionalSecondDigits);
      const inWords = wants.dateStyle ? wants.dateStyle !== "short" : wants.weekday || /narrow|short|long/.test(wants.month ?? "");
      const words = Object.fromEntries(Object.entries(TABLE).filter(([, it]) => it.words));
      ({ locale: this.#locale, known: this.#known } = negotiate(locales, inWords ? words : TABLE));
      if (wants.dateStyle || wants.timeStyle) {
        if ([...FIELDS, ...CLOCK].some((name) => wants[name] !== undefined)) throw new TypeError("Can't set option year when dateStyle or timeStyle is used");
        if (need === "date" && wants.timeStyle) throw new TypeError("Invalid option : timeStyle");
        if (need === "time" && wants.dateStyle) throw new TypeError("Invalid option : dateStyle");
        this.#styled = { date: wants.dateStyle, time: wants.timeStyle };
        const short = wants.dateStyle === "short" && this.#known.words !== "US" ? { year: "numeric", month: "2-digit", day: "2-digit" } : STYLES[wants.dateStyle];
        Object.assign(wants, short, TIMES[wants.timeStyle]);
      } else {
        const has = (names) => names.some((name) => wants[name] !== undefined);
        const dated = has(FIELDS);
        const clocked = has(CLOCK);
        const empty = need === "any" ? !dated && !clocked : need === "date" ? !dated : !clocked;
        if (empty && (fill === "date" || fill === "all")) Object.assign(wants, { year: "numeric", month: "numeric", day: "numeric" });
        if (empty && (fill === "time" || fill === "all")) Object.assign(wants, { hour: "numeric", minute: "numeric", second: "numeric" });
      }
      const cycle = options.hourCycle;
      this.hours = options.hour12 === true ? 12 : options.hour12 === false ? 24 : cycle === "h12" || cycle === "h11" ? 12 : cycle === "h23" || cycle === "h24" ? 24 : this.#known.hours;
      Object.defineProperty(this, "hours", { enumerable: false });
      this.#wants = wants;
      this.#zone = options.timeZone === undefined ? undefined : part("zones").known(`${options.timeZone}`);
    }
    formatToParts(date = Date.now()) {
      const at = new Date(date);
      if (Number.isNaN(at.getTime())) throw new RangeError("Invalid time value");
      const it = moment(at, this.#zone);
      const days = this.#date(it);
      const clock = this.#time(it);
      const parts = [...days];
      if (days.length > 0 && clock.length > 0) {
        const long = this.#styled ? ["full", "long"].includes(this.#styled.date) : this.#wants.month === "long";
        const onlyDay = days.length === 1 && days[0].type === "weekday" && this.#known.words === "GB";
        parts.push({ type: "literal", value: long && this.#known.words ? " at " : onlyDay ? " " : this.#known.join ?? ", " });
      }
      parts.push(...clock);
      if (this.#wants.timeZoneName) {
        if (parts.length > 0) parts.push({ type: "literal", value: clock.length > 0 ? " " : ", " });
        parts.push({ type: "timeZoneName", value: this.#name(it) });
      }
      return parts;
    }
    #name(it) {
      const style = this.#wants.timeZoneName;
      if (style === "shortOffset" || style === "longOffset") return gmt(it.offset, style === "longOffset");
      if (style.startsWith("long")) return it.offset === 0 && (it.abbreviation === "UTC" || it.abbreviation === null) ? "Coordinated Universal Time" : part("zones").long(this.#zone, it.abbreviation) ?? gmt(it.offset, true);
      const american = /^(?:UTC|[ECMP][SD]T|AK[SD]T|HST)$/.test(it.abbreviation ?? "");
      return american ? it.abbreviation : gmt(it.offset, false);
    }
    #date(it) {
      const { weekday, era, year, month, day } = this.#wants;
      const parts = [];
      const push = (type, value) => parts.push({ type, value: `${value}` });
      const name = (list, at, style) => (style === "long" ? list[at] : style === "short" ? (list === MONTHS && this.#known.words === "GB" && at === 8 ? "Sept" : list[at].slice(0, 3)) : list[at][0]);
      const shown = era && it.year < 1 ? 1 - it.year : it.year;
      const years = year === "2-digit" ? two(((it.year % 100) + 100) % 100) : `${shown}`;
      const between = (value) => parts.length > 0 && push("literal", value);
      if (weekday && !(year || month || day)) push("weekday", name(DAYS, it.weekday, weekday));
      else if (month && !/numeric|2-digit/.test(month)) {
        if (weekday) push("weekday", name(DAYS, it.weekday, weekday));
        const gb = this.#known.words === "GB";
        if (gb && day) { between(year ? ", " : " "); push("day", digits(it.day, day)); }
        if (parts.length > 0) push("literal", gb && day ? " " : ", ");
        push("month", name(MONTHS, it.month, month));
        if (!gb && day) { push("literal", " "); push("day", digits(it.day, day)); }
        if (year) { push("literal", !gb && day ? ", " : " "); push("year", years); }
      } else if (year || month || day) {
        if (weekday) { push("weekday", name(DAYS, it.weekday, weekday)); push("literal", ", "); }
        const numeric = { y: ["year", year && years], m: ["month", month && (month === "2-digit" ? two(it.month + 1) : `${it.month + 1}`)], d: ["day", day && digits(it.day, day)] };
        const full = year && month && day;
        const mark = /[^dmy]+/.exec(this.#known.order)[0];
        let first = true;
        for (const field of this.#known.order.split(mark)) {
          const [type, text] = numeric[field[0]];
          if (!text) continue;
          if (!first) push("literal", mark);
          first = false;
          push(type, field.length === 2 && (full || month && day) ? text.padStart(2, "0") : text);
        }
        if (mark === "." && month && !year) push("literal", ".");
      }
      if (era && parts.length > 0) { push("literal", " "); push("era", it.year < 1 ? (era === "long" ? "Before Christ" : "BC") : era === "long" ? "Anno Domini" : "AD"); }
      return parts;
    }
    #time(it) {
      const { hour, minute, second, fractionalSecondDigits } = this.#wants;
      const parts = [];
      const push = (type, value) => parts.push({ type, value: `${value}` });
      const twelve = this.hours === 12;
      if (hour) {
        const value = twelve ? it.hour % 12 || 12 : it.hour;
        const padded = hour === "2-digit" || (!twelve && !this.#known.short && (minute || this.#known.words || this.#known.hours === 24));
        push("hour", padded ? two(value) : value);
      }
      if (minute) {
        if (parts.length > 0) push("literal", ":");
        push("minute", hour || second ? two(it.minute) : digits(it.minute, minute));
      }
      if (second) {
        if (parts.length > 0) push("literal", ":");
        push("second", minute ? two(it.second) : digits(it.second, second));
      }
      if (fractionalSecondDigits) {
        if (parts.length > 0) push("literal", ".");
        push("fractionalSecond", `${it.milli}`.padStart(3, "0").slice(0, fractionalSecondDigits));
      }
      if (hour && twelve) {
        const half = it.hour < 12 ? "AM" : "PM";
        push("literal", " ");
        push("dayPeriod", this.#known.small === "a.m." ? (half === "AM" ? "a.m." : "p.m.") : this.#known.small ? half.toLowerCase() : half);
      }
      return parts;
    }
    get format() { return (date) => this.formatToParts(date).map((it) => it.value).join(""); }
    formatRange(from, to) {
      const [a, b] = [this.format(from), this.format(to)];
      return a === b ? a : `${a} – ${b}`;
    }
    resolvedOptions() {
      const { dateStyle, timeStyle, ...fields } = this.#wants;
      const shown = this.#styled ? { ...(dateStyle ? { dateStyle } : {}), ...(timeStyle ? { timeStyle } : {}) } : fields;
      const cycle = this.#wants.hour ? { hourCycle: this.hours === 12 ? "h12" : "h23", hour12: this.hours === 12 } : {};
      return { locale: this.#locale, calendar: "gregory", numberingSystem: "latn", timeZone: this.#zone ?? part("zones").local(), ...cycle, ...shown };
    }
    static supportedLocalesOf(locales) { return supported(TABLE)(locales); }
    get [Symbol.toStringTag]() { return "Intl.DateTimeFormat"; }
  }
  const callable = new Proxy(DateTimeFormat, {
    apply: (target, self, given) => new DateTimeFormat(given[0], given[1]),
    construct: (target, given, to) => Reflect.construct(target, given.slice(0, 2), to === callable ? target : to),
  });
  const format = (date, locales, options, filled) => new DateTimeFormat(locales, options, filled.split(" ")).format(date);
  return { DateTimeFormat: callable, format };
})
