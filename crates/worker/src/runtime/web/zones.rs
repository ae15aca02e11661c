//! Time zones, from the files that the machine has of them (RFC 9636).

mod rule;

use std::path::Path;

use rquickjs::function::Func;
use rquickjs::{Ctx, IntoJs, Object, Result, Value};

use self::rule::Rule;

/// Where systems keep them.
const FILES: &str = "/usr/share/zoneinfo";
/// More than any file of a zone has.
const FILE: u64 = 64 * 1024;

pub(super) fn natives(natives: &Object<'_>) -> Result<()> {
    natives.set("zoneOffset", Func::from(offset))?;
    natives.set("zoneHere", Func::from(here))
}

/// Seconds east of Greenwich, and what people call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offset {
    pub(super) seconds: i32,
    pub(super) name: String,
}

impl<'js> IntoJs<'js> for Offset {
    fn into_js(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        let pair = rquickjs::Array::new(ctx.clone())?;
        pair.set(0, self.seconds)?;
        pair.set(1, self.name)?;
        pair.into_js(ctx)
    }
}

/// None for a zone that nobody knows.
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
    #[expect(clippy::cast_possible_truncation, reason = "dates of JavaScript are far smaller")]
    Zone::parse(&bytes)?.at(at as i64)
}

/// The name of the zone of this machine, if its file tells.
fn here() -> Option<String> {
    let link = std::fs::read_link("/etc/localtime").ok()?;
    let link = link.to_str()?;
    link.split_once("zoneinfo/").map(|(_, name)| name.to_owned())
}

/// One file.
#[derive(Debug)]
struct Zone {
    /// From when on which of the types holds.
    changes: Vec<(i64, usize)>,
    types: Vec<Offset>,
    /// What holds after the last change.
    rule: Option<Rule>,
}

impl Zone {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let first = Head::parse(bytes)?;
        // The second part says the same in 64 bits; version 1 had none.
        let bytes = bytes.get(first.length(4)?..)?;
        let head = Head::parse(bytes)?;
        let mut rest = bytes.get(Head::LENGTH..)?;
        let mut take = |length: usize| {
            let (taken, left) = rest.split_at_checked(length)?;
            rest = left;
            Some(taken)
        };
        let times = take(head.times.checked_mul(8)?)?;
        let kinds = take(head.times)?;
        let types = take(head.types.checked_mul(6)?)?;
        let names = take(head.names)?;
        take(head.leaps.checked_mul(12)?)?;
        take(head.standard)?;
        take(head.universal)?;
        let times = times.as_chunks::<8>().0.iter().map(|it| i64::from_be_bytes(*it));
        let changes = times.zip(kinds.iter().map(|it| usize::from(*it))).collect();
        let types = types.as_chunks::<6>().0.iter();
        let types = types.map(|[a, b, c, d, _, name]| {
            let name = names.get(usize::from(*name)..).unwrap_or_default();
            let name = name.split(|it| *it == 0).next().unwrap_or_default();
            let seconds = i32::from_be_bytes([*a, *b, *c, *d]);
            Offset { seconds, name: String::from_utf8_lossy(name).into_owned() }
        });
        let types = types.collect();
        let rule = String::from_utf8_lossy(rest).trim().parse().ok();
        Some(Self { changes, types, rule })
    }

    fn at(&self, time: i64) -> Option<Offset> {
        let after = self.changes.partition_point(|(change, _)| *change <= time);
        if after == self.changes.len()
            && let Some(rule) = &self.rule
        {
            return Some(rule.at(time));
        }
        let kind = after.checked_sub(1).and_then(|at| self.changes.get(at)).map_or(0, |it| it.1);
        self.types.get(kind).cloned()
    }
}

/// How many of everything there are.
struct Head {
    universal: usize,
    standard: usize,
    leaps: usize,
    times: usize,
    types: usize,
    names: usize,
}

impl Head {
    const LENGTH: usize = 44;

    fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..Self::LENGTH)?;
        let (version, counts) = (head.get(4)?, head.get(20..)?);
        if !head.starts_with(b"TZif") || *version < b'2' {
            return None;
        }
        let counts = counts.as_chunks::<4>().0.iter().map(|it| u32::from_be_bytes(*it));
        let counts: Vec<usize> = counts.filter_map(|it| usize::try_from(it).ok()).collect();
        let [universal, standard, leaps, times, types, names] = counts[..] else { return None };
        Some(Self { universal, standard, leaps, times, types, names })
    }

    /// Of the part that begins here, with times of so many bytes.
    fn length(&self, width: usize) -> Option<usize> {
        let times = self.times.checked_mul(width + 1)?;
        let leaps = self.leaps.checked_mul(width + 4)?;
        let rest = self.types.checked_mul(6)?.checked_add(self.names)?;
        let marks = self.standard.checked_add(self.universal)?;
        Self::LENGTH.checked_add(times)?.checked_add(leaps)?.checked_add(rest)?.checked_add(marks)
    }
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
    fn zones_change_when_they_did_and_when_they_will() {
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
    fn what_is_no_name_of_a_zone_is_no_file() {
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
