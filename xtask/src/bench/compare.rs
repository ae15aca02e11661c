//! `--compare OLD`: measures an older `belljar` and the new one in turns, in one run.
//!
//! The comparison shows whether a change makes Belljar slower. Both binaries run on the same machine at
//! the same time, each with its own state directory. A benchmark fails if the median of the new binary
//! is above the 90th percentile of the old one. Smaller differences are noise.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::lab::{Lab, binary_or_build};
use super::stats::Stats;
use super::{code, creates, start, start_net};

const BUDGET: Duration = Duration::from_secs(30);
const WARM_UP: usize = 3;
const MIN_ROUNDS: usize = 20;
/// The number of boxes that each loop runs for one sample of `creates`.
const BOXES: u32 = 5;

/// A function that takes one sample, in milliseconds.
type Sample<'a> = Box<dyn FnMut() -> Result<f64> + 'a>;

/// A benchmark that can be compared.
struct Measure {
    name: &'static str,
    description: &'static str,
    prepare: for<'a> fn(&'a Lab) -> Result<Sample<'a>>,
}

const MEASURES: &[Measure] = &[
    Measure {
        name: "start",
        description: "one box for /bin/true",
        prepare: |lab| Ok(Box::new(|| start::once(lab))),
    },
    Measure {
        name: "start-net",
        description: "one box for /bin/true with a network rule",
        prepare: |lab| Ok(Box::new(|| start_net::once(lab))),
    },
    Measure {
        name: "warm",
        description: "a new box of a running server",
        prepare: |lab| Ok(Box::new(code::warm_calls(lab)?)),
    },
    Measure {
        name: "code",
        description: "execute_code of a one-line program",
        prepare: |lab| Ok(Box::new(code::code_calls(lab)?)),
    },
    Measure {
        name: "creates",
        description: "time per box, with two concurrent loops",
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
        bail!("{} is not a file; --compare needs the path of a belljar binary", old.display());
    }
    let new = binary_or_build(new)?;
    let labs = [Lab::of(old, "bench-old")?, Lab::of(&new, "bench-new")?];
    let mut slower = Vec::new();
    println!(
        "{:<10} {:>5} {:>10} {:>10} {:>10} {:>10} {:>7}",
        "ms", "n", "old median", "old p90", "new median", "new p90", "ratio"
    );
    for measure in measures {
        let comparison = compare(measure, &labs, budget.unwrap_or(BUDGET))
            .with_context(|| format!("benchmark `{}` failed", measure.name))?;
        println!("{}  {}", comparison.row(measure.name), measure.description);
        if comparison.is_slower() {
            slower.push(measure.name);
        }
    }
    if !slower.is_empty() {
        bail!("the new median is above the old 90th percentile: {}", slower.join(", "));
    }
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<&'static Measure>> {
    let known = || MEASURES.iter().map(|measure| measure.name).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        let found = MEASURES.iter().find(|measure| measure.name == name);
        found.with_context(|| format!("`{name}` cannot be compared; only {} can", known()))
    };
    if names.is_empty() { Ok(MEASURES.iter().collect()) } else { names.iter().map(find).collect() }
}

fn compare(measure: &Measure, [old, new]: &[Lab; 2], budget: Duration) -> Result<Comparison> {
    let mut turns = [
        ((measure.prepare)(old).context("cannot prepare the old binary")?, Vec::new()),
        ((measure.prepare)(new).context("cannot prepare the new binary")?, Vec::new()),
    ];
    for _ in 0..WARM_UP {
        for (sample, _) in &mut turns {
            sample()?;
        }
    }
    let started = Instant::now();
    let mut round = 0;
    while round < MIN_ROUNDS || started.elapsed() < budget {
        // Reverse the order in every round, so that no binary always runs after the other.
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
    let stats = |samples: &[f64]| Stats::of(samples).context("there are no samples");
    Ok(Comparison { old: stats(&old)?, new: stats(&new)? })
}

/// The results of one benchmark for both binaries.
#[derive(Debug)]
struct Comparison {
    old: Stats,
    new: Stats,
}

impl Comparison {
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

    fn compared(old: &[f64], new: &[f64]) -> Comparison {
        Comparison { old: Stats::of(old).unwrap(), new: Stats::of(new).unwrap() }
    }

    #[test]
    fn new_binary_is_slower_if_its_median_is_above_the_old_90th_percentile() {
        let old: Vec<f64> = (0..=10).map(f64::from).collect();
        assert!(!compared(&old, &[9.0]).is_slower());
        assert!(compared(&old, &[9.1]).is_slower());
        assert!(!compared(&old, &[1.0, 2.0, 100.0]).is_slower(), "only the median counts");
        assert!(!compared(&old, &old).is_slower());
    }

    #[test]
    fn comparison_row_shows_both_results_their_ratio_and_the_verdict() {
        let row = compared(&[2.0], &[3.0]).row("start");
        let columns: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(columns, ["start", "1", "2.00", "2.00", "3.00", "3.00", "1.50", "SLOWER"]);
    }

    #[test]
    fn choose_rejects_a_benchmark_that_cannot_be_compared_and_lists_the_others() {
        assert_eq!(choose(&[]).unwrap().len(), MEASURES.len());
        let error = choose(&["density".to_owned()]).err().unwrap().to_string();
        assert_eq!(
            error,
            "`density` cannot be compared; only start, start-net, warm, code, creates can"
        );
    }
}
