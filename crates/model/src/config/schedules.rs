//! Parser for `[schedule.NAME]`, which starts a plan at given times.

use std::path::{Path, PathBuf};

use super::Config;
use super::keys::{Invalid, ParseValue, Value, invalid, path, scalar, set, table, text};
use crate::id::RunName;
use crate::mount::anchor;
use crate::schedule::{Missed, Overlap, Schedule, ScheduleLines};

/// The maximum length of a cron expression or of the name of a time zone in bytes.
const MAX_TEXT: usize = 256;

/// The parsed keys of a schedule, before they are checked together. A position is an offset in the file.
#[derive(Debug, Default)]
struct Raw {
    plan: Option<(PathBuf, usize)>,
    cron: Option<(String, usize)>,
    zone: Option<(String, usize)>,
    missed: Option<Missed>,
    overlap: Option<Overlap>,
}

const KEYS: [(&str, ParseValue<Raw>); 5] = [
    ("plan", |raw, value| set(&mut raw.plan, at(value, path(value)))),
    ("cron", |raw, value| set(&mut raw.cron, at(value, short(value)))),
    ("zone", |raw, value| set(&mut raw.zone, at(value, short(value)))),
    ("missed", |raw, value| set(&mut raw.missed, scalar(value))),
    ("overlap", |raw, value| set(&mut raw.overlap, scalar(value))),
];

/// Parses a `[schedule.NAME]` section; an error about the whole section is `Invalid::Here`. The lines of the
/// result are offsets in the file, which `line` converts.
pub(super) fn read(
    name: RunName,
    value: &Value<'_>,
    file: &Path,
    heading: usize,
    line: impl Fn(usize) -> usize,
) -> Result<Schedule, Invalid> {
    let mut raw = Raw::default();
    table(&mut raw, &KEYS, value)?;
    // Destructured without `..`, so that a new key cannot be ignored by mistake.
    let Raw { plan, cron, zone, missed, overlap } = raw;
    let (plan, plan_at) =
        plan.ok_or_else(|| invalid("`plan` is missing; it names the file of the plan"))?;
    let (cron, cron_at) = cron
        .ok_or_else(|| invalid("`cron` is missing; write, for example, `cron = \"0 3 * * *\"`"))?;
    let (zone, zone_at) = zone.unwrap_or_else(|| (Schedule::DEFAULT_ZONE.to_owned(), heading));
    let lines = ScheduleLines {
        heading: line(heading),
        plan: line(plan_at),
        cron: line(cron_at),
        zone: line(zone_at),
    };
    Ok(Schedule {
        name,
        plan: anchor(&plan, file.parent().unwrap_or(Path::new("")), None),
        cron,
        zone,
        missed: missed.unwrap_or_default(),
        overlap: overlap.unwrap_or_default(),
        file: file.to_owned(),
        lines,
    })
}

fn at<T>(value: &Value<'_>, parsed: Result<T, Invalid>) -> Result<(T, usize), Invalid> {
    Ok((parsed?, value.span().start))
}

fn short(value: &Value<'_>) -> Result<String, Invalid> {
    let text = text(value)?;
    if text.is_empty() || text.len() > MAX_TEXT || text.chars().any(char::is_control) {
        return Err(invalid(format!("must have 1 to {MAX_TEXT} characters on one line")));
    }
    Ok(text)
}

impl Config {
    /// Returns the schedules, sorted by name.
    pub fn schedules(&self) -> impl Iterator<Item = &Schedule> {
        self.schedules.values()
    }

    /// Returns the schedule with a name.
    pub fn schedule(&self, name: &str) -> Option<&Schedule> {
        self.schedules.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Scope;
    use crate::schedule::ScheduleKey;

    fn parse(text: &str, scope: Scope) -> Result<Vec<Schedule>, String> {
        let config = Config::parse(text, Path::new("/etc/belljar.toml"), scope);
        config.map(|it| it.schedules().cloned().collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn schedule_has_all_its_values_and_their_lines() {
        let text = "[schedule.nightly]\nplan = 'plans/a.toml'\ncron = '0 3 * * *'\nzone = 'Europe/Berlin'\nmissed = 'skip'\noverlap = 'queue'\n[schedule.b]\nplan = '/p.toml'\ncron = '* * * * *'\n";
        let schedules = parse(text, Scope::Operator).unwrap();
        let [other, nightly] = schedules.as_slice() else { panic!("two schedules") };
        assert_eq!(nightly.plan, Path::new("/etc/plans/a.toml"));
        assert_eq!((nightly.cron.as_str(), nightly.zone.as_str()), ("0 3 * * *", "Europe/Berlin"));
        assert_eq!((nightly.missed, nightly.overlap), (Missed::Skip, Overlap::Queue));
        assert_eq!(nightly.lines, ScheduleLines { heading: 1, plan: 2, cron: 3, zone: 4 });
        assert_eq!((other.zone.as_str(), other.lines.zone), ("UTC", 7));
        assert_eq!((other.missed, other.overlap), (Missed::Once, Overlap::Skip));
        let error = nightly.error(ScheduleKey::Zone, "unknown".to_owned()).to_string();
        assert_eq!(error, "/etc/belljar.toml:4: `zone = \"Europe/Berlin\"`: unknown");
    }

    #[test]
    fn invalid_schedule_is_refused_with_its_line() {
        let whole = "plan = 'p.toml'\ncron = '* * * * *'\n";
        for (text, expect) in [
            ("cron = '* * * * *'", "1: schedule `x`: `plan` is missing"),
            ("plan = 'p.toml'", "1: schedule `x`: `cron` is missing"),
            (&format!("{whole}missed = 'all'"), "4: `missed = 'all'`: write `once` or `skip`"),
            (&format!("{whole}overlap = 1"), "4: `overlap = 1`: write `skip`, `queue` or `allow`"),
            (&format!("{whole}zone = ''"), "4: `zone = ''`: must have 1 to 256 characters"),
            (&format!("{whole}zones = 'UTC'"), "4: unknown key `zones`; did you mean `zone`?"),
        ] {
            let error = parse(&format!("[schedule.x]\n{text}\n"), Scope::Operator).unwrap_err();
            assert!(error.starts_with(&format!("/etc/belljar.toml:{expect}")), "{error}");
        }
    }

    #[test]
    fn c08_project_cannot_set_schedules() {
        let text = "[schedule.x]\nplan = 'p.toml'\ncron = '* * * * *'\n";
        let error = parse(text, Scope::Project).unwrap_err();
        assert!(error.contains("only valid in the operator's own file"), "{error}");
        assert!(parse(text, Scope::Operator).is_ok());
    }
}
