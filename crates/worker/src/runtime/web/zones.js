// Time zones: UTC, fixed offsets, and the zones with a file in the box.
(function (native) {
  const LONG = {
    EST: "Eastern Standard Time", EDT: "Eastern Daylight Time", CST: "Central Standard Time", CDT: "Central Daylight Time", MST: "Mountain Standard Time",
    MDT: "Mountain Daylight Time", PST: "Pacific Standard Time", PDT: "Pacific Daylight Time", UTC: "Coordinated Universal Time", GMT: "Greenwich Mean Time",
    CET: "Central European Standard Time", CEST: "Central European Summer Time", BST: "British Summer Time", JST: "Japan Standard Time", IST: "India Standard Time",
  };
  const fixed = (zone) => {
    const found = /^([+-])(\d{2}):?(\d{2})?$/.exec(zone);
    return found && (found[1] === "-" ? -1 : 1) * (Number(found[2]) * 3600 + Number(found[3] ?? 0) * 60);
  };
  // Returns the canonical name of a zone. Throws for an unknown zone.
  const known = (zone) => {
    if (/^(?:utc|etc\/utc|etc\/gmt|gmt|z)$/i.test(zone)) return /^(?:etc\/)?gmt$/i.test(zone) ? "UTC" : "UTC";
    if (fixed(zone) !== null) return zone;
    if (native.zoneOffset(zone, 0) === undefined) throw new RangeError(`Invalid time zone specified: ${zone}`);
    return zone;
  };
  const offset = (zone, seconds) => {
    if (zone === "UTC") return [0, "UTC"];
    const simple = fixed(zone);
    if (simple !== null) return [simple, null];
    const [at, name] = native.zoneOffset(zone, seconds);
    return [Number(at), name];
  };
  const local = () => (new Date(0).getTimezoneOffset() === 0 && new Date(1720000000000).getTimezoneOffset() === 0 ? "UTC" : native.zoneHere() ?? "UTC");
  return { known, offset, local, long: (zone, short) => LONG[short] };
})
