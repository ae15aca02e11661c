//! `--compare OLD`: an older `belljar` and the new one, in turns, in one run.
//!
//! For a change that must not make anything slower. Both run on the same machine at the same time of
//! day, each with a state directory of its own, so only the binaries differ. A bench fails when the
//! median of the new one is above the 90th percentile of the old one: less than that is noise.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::lab::{Lab, binary_or_build};
use super::stats::Stats;
use super::{code, creates, start, start_net};

const BUDGET: Duration = Duration::from_secs(30);
const WARM_UP: usize = 3;
const MIN_ROUNDS: usize = 20;
/// Boxes of each loop in one sample of `creates`.
const BOXES: u32 = 5;

/// Takes one sample, in milliseconds.
type Sample<'a> = Box<dyn FnMut() -> Result<f64> + 'a>;

struct Measure {
    name: &'static str,
    what: &'static str,
    prepare: for<'a> fn(&'a Lab) -> Result<Sample<'a>>,
}

const MEASURES: &[Measure] = &[
    Measure {
        name: "start",
        what: "one box for /bin/true",
        prepare: |lab| Ok(Box::new(|| start::once(lab))),
    },
    Measure {
        name: "start-net",
        what: "the same with a rule for the network",
        prepare: |lab| Ok(Box::new(|| start_net::once(lab))),
    },
    Measure {
        name: "warm",
        what: "one more box of a running server",
        prepare: |lab| Ok(Box::new(code::warm_calls(lab)?)),
    },
    Measure {
        name: "code",
        what: "execute_code of a one-liner",
        prepare: |lab| Ok(Box::new(code::code_calls(lab)?)),
    },
    Measure {
        name: "creates",
        what: "time per box, two loops at once",
        prepare: |lab| Ok(Box::new(|| creates::per_box(lab, BOXES))),
    },
];

pub(super) fn run(
    old: &Path,
    new: Option<PathBuf>,
    names: &[String],
    budget: Option<Duration>,
) -> Result<()> {
    let measures = choose(names)?;
    if !old.is_file() {
        bail!("{} is no file", old.display());
    }
    let new = binary_or_build(new)?;
    let labs = [Lab::of(old, "bench-old")?, Lab::of(&new, "bench-new")?];
    let mut slower = Vec::new();
    println!(
        "{:<10} {:>5} {:>10} {:>10} {:>10} {:>10} {:>7}",
        "ms", "n", "old median", "old p90", "new median", "new p90", "ratio"
    );
    for measure in measures {
        let compared = compare(measure, &labs, budget.unwrap_or(BUDGET))
            .with_context(|| format!("bench `{}`", measure.name))?;
        println!("{}  {}", compared.row(measure.name), measure.what);
        if compared.is_slower() {
            slower.push(measure.name);
        }
    }
    if !slower.is_empty() {
        bail!("slower than the old 90th percentile: {}", slower.join(", "));
    }
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<&'static Measure>> {
    let known = || MEASURES.iter().map(|measure| measure.name).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        let found = MEASURES.iter().find(|measure| measure.name == name);
        found.with_context(|| format!("`{name}` cannot be compared; {} can", known()))
    };
    if names.is_empty() { Ok(MEASURES.iter().collect()) } else { names.iter().map(find).collect() }
}

fn compare(measure: &Measure, [old, new]: &[Lab; 2], budget: Duration) -> Result<Compared> {
    let mut turns = [
        ((measure.prepare)(old).context("old")?, Vec::new()),
        ((measure.prepare)(new).context("new")?, Vec::new()),
    ];
    for _ in 0..WARM_UP {
        for (sample, _) in &mut turns {
            sample()?;
        }
    }
    let started = Instant::now();
    let mut round = 0;
    while round < MIN_ROUNDS || started.elapsed() < budget {
        // The order changes every round, so that nobody always runs in the wake of the other.
        turns.reverse();
        for (sample, samples) in &mut turns {
            samples.push(sample()?);
        }
        round += 1;
    }
    if round % 2 == 1 {
        turns.reverse();
    }
    let [(_, old), (_, new)] = turns;
    let stats = |samples: &[f64]| Stats::of(samples).context("no samples");
    Ok(Compared { old: stats(&old)?, new: stats(&new)? })
}

/// What one bench found.
#[derive(Debug)]
struct Compared {
    old: Stats,
    new: Stats,
}

impl Compared {
    fn is_slower(&self) -> bool {
        self.new.median > self.old.p90
    }

    fn row(&self, name: &str) -> String {
        let Self { old, new } = self;
        let verdict = if self.is_slower() { "SLOWER" } else { "ok" };
        format!(
            "{name:<10} {:>5} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>7.2}  {verdict:<6}",
            old.count,
            old.median,
            old.p90,
            new.median,
            new.p90,
            new.median / old.median
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(old: &[f64], new: &[f64]) -> Compared {
        Compared { old: Stats::of(old).unwrap(), new: Stats::of(new).unwrap() }
    }

    #[test]
    fn a_median_above_the_old_90th_percentile_is_slower() {
        let old: Vec<f64> = (0..=10).map(f64::from).collect();
        assert!(!compared(&old, &[9.0]).is_slower());
        assert!(compared(&old, &[9.1]).is_slower());
        assert!(!compared(&old, &[1.0, 2.0, 100.0]).is_slower(), "only the median counts");
        assert!(!compared(&old, &old).is_slower());
    }

    #[test]
    fn a_row_shows_both_sides_and_the_verdict() {
        let row = compared(&[2.0], &[3.0]).row("start");
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["start", "1", "2.00", "2.00", "3.00", "3.00", "1.50", "SLOWER"]);
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_can_be_compared() {
        assert_eq!(choose(&[]).unwrap().len(), MEASURES.len());
        let error = choose(&["density".to_owned()]).err().unwrap().to_string();
        assert_eq!(
            error,
            "`density` cannot be compared; start, start-net, warm, code, creates can"
        );
    }
}
