//! The results of a benchmark, as a table for people and as JSON for `bench/<date>.json`.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::stats::Stats;
use crate::shell::{program, read, root};

/// The result of one benchmark. The first row is Belljar, and `reference` is the name of the tool that
/// it is compared with. The goal applies to the worst ratio of Belljar's rows.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) bench: &'static str,
    /// One line that describes the measurement.
    pub(super) description: String,
    pub(super) unit: &'static str,
    pub(super) reference: &'static str,
    pub(super) goal: Goal,
    pub(super) rows: Vec<Row>,
    /// The names of further rows of Belljar that have to meet the goal, too.
    pub(super) also: &'static [&'static str],
    /// Details of the measurement for the reader.
    pub(super) notes: Vec<String>,
    /// Failed checks other than the ratio, such as processes that were left behind.
    pub(super) failures: Vec<String>,
}

/// A measured tool: its samples, or the reason why it has none.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) samples: Result<Vec<f64>, String>,
}

/// The bounds of the ratio of Belljar to the reference.
#[derive(Debug, Clone, Copy)]
pub(super) enum Goal {
    AtMost { first: f64, moonshot: f64 },
    AtLeast { first: f64, moonshot: f64 },
}

impl Goal {
    /// Returns the label and the bound of each goal, and whether the ratio meets it. Without a ratio, no
    /// goal is met.
    fn verdicts(self, ratio: Option<f64>) -> [(&'static str, String, bool); 2] {
        let (sign, first, moonshot) = match self {
            Self::AtMost { first, moonshot } => ('≤', first, moonshot),
            Self::AtLeast { first, moonshot } => ('≥', first, moonshot),
        };
        let met = |bound: f64| match self {
            Self::AtMost { .. } => ratio.is_some_and(|ratio| ratio <= bound),
            Self::AtLeast { .. } => ratio.is_some_and(|ratio| ratio >= bound),
        };
        [("first goal", first), ("moonshot", moonshot)]
            .map(|(label, bound)| (label, format!("{sign} {bound}"), met(bound)))
    }
}

impl Report {
    fn median(&self, name: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.name == name)?;
        Some(Stats::of(row.samples.as_ref().ok()?)?.median)
    }

    /// Returns the worst ratio of Belljar's rows to the reference; `None` if a row is missing.
    fn ratio(&self) -> Option<f64> {
        let reference = self.median(self.reference)?;
        let mut worst = self.median(self.rows.first()?.name)? / reference;
        for name in self.also {
            let ratio = self.median(name)? / reference;
            worst = match self.goal {
                Goal::AtMost { .. } => worst.max(ratio),
                Goal::AtLeast { .. } => worst.min(ratio),
            };
        }
        Some(worst)
    }

    pub(super) fn first_goal_met(&self) -> bool {
        let [(_, _, met), _] = self.goal.verdicts(self.ratio());
        met && self.failures.is_empty()
    }

    fn json(&self) -> Value {
        let reference = self.median(self.reference);
        let tools: Vec<Value> = self
            .rows
            .iter()
            .map(|row| match row.samples.as_ref().map(|samples| Stats::of(samples)) {
                Ok(Some(stats)) => json!({
                    "name": row.name, "samples": stats.count,
                    "median": rounded(stats.median), "p10": rounded(stats.p10), "p90": rounded(stats.p90),
                    "ratio": reference.map(|reference| rounded(stats.median / reference)),
                }),
                Ok(None) => json!({ "name": row.name, "absent": "no samples" }),
                Err(reason) => json!({ "name": row.name, "absent": reason }),
            })
            .collect();
        let goals: Vec<Value> = self
            .goal
            .verdicts(self.ratio())
            .into_iter()
            .map(|(label, bound, met)| json!({ "goal": label, "bound": bound, "met": met && self.failures.is_empty() }))
            .collect();
        json!({
            "what": self.description, "unit": self.unit, "reference": self.reference, "contenders": tools,
            "ratio": self.ratio().map(rounded), "goals": goals, "notes": self.notes, "broken": self.failures,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.description, self.unit)?;
        let against = format!("× {}", self.reference);
        writeln!(
            f,
            "  {:<10} {:>6} {:>9} {:>9} {:>9} {against:>9}",
            "tool", "n", "median", "p10", "p90"
        )?;
        let reference = self.median(self.reference);
        for row in &self.rows {
            match row.samples.as_ref().map(|samples| Stats::of(samples)) {
                Ok(Some(Stats { count, median, p10, p90 })) => {
                    let ratio = reference
                        .map_or("–".to_owned(), |reference| format!("{:.2}", median / reference));
                    writeln!(
                        f,
                        "  {:<10} {count:>6} {median:>9.2} {p10:>9.2} {p90:>9.2} {ratio:>9}",
                        row.name
                    )?;
                }
                Ok(None) => writeln!(f, "  {:<10} absent: no samples", row.name)?,
                Err(reason) => writeln!(f, "  {:<10} absent: {reason}", row.name)?,
            }
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        for (label, bound, met) in self.goal.verdicts(self.ratio()) {
            let verdict = if met && self.failures.is_empty() { "PASS" } else { "FAIL" };
            let ratio =
                self.ratio().map_or("no reference".to_owned(), |ratio| format!("{ratio:.2}"));
            writeln!(f, "  {label:<10} {bound} × {}: {verdict} ({ratio})", self.reference)?;
        }
        for failure in &self.failures {
            writeln!(f, "  FAIL: {failure}")?;
        }
        Ok(())
    }
}

/// Rounds to three decimal places, because the rest is noise.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Writes the reports to the file of today. Reports of other benchmarks in the file are kept.
pub(super) fn save(reports: &[Report]) -> Result<PathBuf> {
    let date = read(program("date").args(["-u", "+%F"]))?.trim().to_owned();
    let path = root().join("bench").join(format!("{date}.json"));
    let mut benches = match std::fs::read_to_string(&path) {
        Ok(text) => {
            let old: Value = serde_json::from_str(&text)
                .with_context(|| format!("cannot parse {}", path.display()))?;
            old.get("benches").and_then(Value::as_object).cloned().unwrap_or_default()
        }
        Err(_) => serde_json::Map::new(),
    };
    for report in reports {
        benches.insert(report.bench.to_owned(), report.json());
    }
    let file =
        json!({ "date": date, "machine": machine()?, "commit": commit(), "benches": benches });
    std::fs::create_dir_all(root().join("bench"))?;
    std::fs::write(&path, serde_json::to_string_pretty(&file)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Returns properties of the machine that affect the results, but nothing that identifies it.
fn machine() -> Result<Value> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let kernel = read(program("uname").args(["-srm"]))?;
    Ok(json!({
        "cpu": model.trim_start_matches([' ', '\t', ':']),
        "cores": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "kernel": kernel.trim(),
        "user": if crate::shell::uid()? == 0 { "root" } else { "a plain user" },
    }))
}

/// Returns the current commit, and whether there are uncommitted changes.
fn commit() -> String {
    let git = |args: &[&str]| read(program("git").args(["-c", "safe.directory=*"]).args(args));
    let head = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_default().trim().to_owned();
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"])
        .is_ok_and(|changes| !changes.is_empty());
    if dirty { head + " with changes" } else { head }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(reference: Result<Vec<f64>, String>) -> Report {
        Report {
            bench: "start",
            description: "one box".to_owned(),
            unit: "ms",
            reference: "bwrap",
            goal: Goal::AtMost { first: 1.5, moonshot: 1.0 },
            rows: vec![
                Row { name: "belljar", samples: Ok(vec![12.0, 12.0]) },
                Row { name: "bwrap", samples: reference },
            ],
            also: &[],
            notes: Vec::new(),
            failures: Vec::new(),
        }
    }

    #[test]
    fn report_table_shows_the_ratio_and_whether_goals_are_met() {
        let report = report(Ok(vec![10.0]));
        let text = report.to_string();
        assert!(text.contains("first goal ≤ 1.5 × bwrap: PASS (1.20)"), "{text}");
        assert!(text.contains("moonshot   ≤ 1 × bwrap: FAIL (1.20)"), "{text}");
        assert!(report.first_goal_met());
        assert_eq!(report.json().pointer("/contenders/0/ratio"), Some(&json!(1.2)));
    }

    #[test]
    fn report_without_a_reference_meets_no_goal() {
        let report = report(Err("not installed".to_owned()));
        let text = report.to_string();
        assert!(text.contains("bwrap      absent: not installed"), "{text}");
        assert!(text.contains("FAIL (no reference)"), "{text}");
        assert!(!report.first_goal_met());
    }

    #[test]
    fn report_meets_its_goal_only_if_all_required_rows_meet_it() {
        let mut report = report(Ok(vec![10.0]));
        report.rows.push(Row { name: "deep", samples: Ok(vec![16.0]) });
        assert!(report.first_goal_met(), "a row outside of `also` does not count");
        report.also = &["deep"];
        assert!(!report.first_goal_met());
        assert!(report.to_string().contains("FAIL (1.60)"));
        report.also = &["absent"];
        assert!(!report.first_goal_met());
    }

    #[test]
    fn report_with_a_failed_check_does_not_meet_its_goal() {
        let mut report = report(Ok(vec![100.0]));
        report.failures.push("3 cgroups left".to_owned());
        assert!(!report.first_goal_met());
        assert!(report.to_string().ends_with("FAIL: 3 cgroups left\n"));
    }

    #[test]
    fn goal_at_least_is_met_by_a_ratio_above_its_bound() {
        let goal = Goal::AtLeast { first: 1.5, moonshot: 4.0 };
        assert_eq!(goal.verdicts(Some(2.0)).map(|(_, _, met)| met), [true, false]);
        assert_eq!(goal.verdicts(None).map(|(_, _, met)| met), [false, false]);
    }
}
