//! Time zones from the zone files of the box (RFC 9636).
//!
//! This module maps zone names to paths, and `jiff` parses the files. `jiff` has no bundled zone
//! database in this build, so only the zones of the box's image are available.

use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rquickjs::function::Func;
use rquickjs::{Ctx, IntoJs, Object, Result, Value};

/// The directory of the time zone files on Linux.
const FILES: &str = "/usr/share/zoneinfo";
/// The maximum size of a time zone file in bytes. Real files are smaller.
const FILE: u64 = 64 * 1024;
/// The number of seconds in 400 years, after which the Gregorian calendar and zone rules repeat.
const CYCLE: i64 = 146_097 * 86_400;

pub(super) fn natives(natives: &Object<'_>) -> Result<()> {
    natives.set("zoneOffset", Func::from(offset))?;
    natives.set("zoneHere", Func::from(here))
}

/// The offset of a time zone from UTC in seconds, and the abbreviation of the zone at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Offset {
    seconds: i32,
    name: String,
}

impl<'js> IntoJs<'js> for Offset {
    fn into_js(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        let pair = rquickjs::Array::new(ctx.clone())?;
        pair.set(0, self.seconds)?;
        pair.set(1, self.name)?;
        pair.into_js(ctx)
    }
}

/// Returns the offset of a time zone at a time, or `None` for an unknown zone.
fn offset(zone: String, at: f64) -> Option<Offset> {
    let is_name = |part: &str| {
        let allowed = |it: char| it.is_ascii_alphanumeric() || "_+-".contains(it);
        !part.is_empty() && part.chars().all(allowed)
    };
    if !zone.split('/').all(is_name) {
        return None;
    }
    let path = Path::new(FILES).join(&zone);
    let bytes = std::fs::metadata(&path).ok().filter(|it| it.is_file() && it.len() <= FILE);
    let bytes = bytes.and_then(|_| std::fs::read(&path).ok())?;
    let file = TimeZone::tzif(&zone, &bytes).ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "dates of JavaScript are far smaller")]
    let info = file.to_offset_info(timestamp(at as i64)?);
    Some(Offset { seconds: info.offset().seconds(), name: info.abbreviation().to_owned() })
}

/// Returns a timestamp in the supported range with the same zone offset as `seconds`.
///
/// JavaScript dates exceed the years -9999 to 9999 that `jiff` supports.
fn timestamp(seconds: i64) -> Option<Timestamp> {
    let (first, last) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    let seconds = match seconds {
        // No zone changed its offset so early.
        ..0 => seconds.max(first),
        _ if seconds > last => last - CYCLE + (seconds - last) % CYCLE,
        _ => seconds,
    };
    Timestamp::from_second(seconds).ok()
}

/// Returns the name of the local time zone, if `/etc/localtime` is a link to its file.
fn here() -> Option<String> {
    let link = std::fs::read_link("/etc/localtime").ok()?;
    let link = link.to_str()?;
    link.split_once("zoneinfo/").map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(zone: &str, at: f64, expected: &str) {
        let got = offset(zone.to_owned(), at);
        let got = got.map_or("none".to_owned(), |it| format!("{} {}", it.seconds, it.name));
        assert_eq!(got, expected, "{zone} at {at}");
    }

    #[test]
    fn time_zone_offsets_are_correct_in_the_past_and_future() {
        check("America/New_York", 1_704_467_049.0, "-18000 EST");
        check("America/New_York", 1_720_000_000.0, "-14400 EDT");
        check("Europe/Berlin", 1_720_000_000.0, "7200 CEST");
        check("Asia/Tokyo", 0.0, "32400 JST");
        check("Asia/Kolkata", 1_720_000_000.0, "19800 IST");
        check("Australia/Sydney", 1_704_467_049.0, "39600 AEDT");
        check("Europe/Berlin", 4_118_000_000.0, "7200 CEST"); // 2100-06-30
        check("Europe/Berlin", 4_102_444_800.0, "3600 CET"); // 2100-01-01
        check("UTC", 1.0, "0 UTC");
    }

    #[test]
    fn first_and_last_javascript_dates_have_a_time_zone_offset() {
        check("Europe/Berlin", 8_640_000_000_000.0, "7200 CEST"); // 275760-09-13
        // Summer time ends on 275443-10-29 at 01:00 UTC.
        check("Europe/Berlin", 8_630_000_326_799.0, "7200 CEST");
        check("Europe/Berlin", 8_630_000_326_800.0, "3600 CET");
        check("Europe/Berlin", -8_640_000_000_000.0, "3208 LMT"); // -271821-04-20
    }

    #[test]
    fn invalid_time_zone_names_are_not_used_as_paths() {
        for name in [
            "",
            "Nowhere/X",
            "../../../etc/passwd",
            "/etc/passwd",
            "America",
            "a//b",
            ".",
            "tzdata.zi",
        ] {
            check(name, 0.0, "none");
        }
    }
}
