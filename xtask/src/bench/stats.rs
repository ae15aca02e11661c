//! Median and spread: what is left of samples from a noisy machine.

/// The middle of the samples and where all but the outer tenths of them lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stats {
    pub(super) count: usize,
    pub(super) median: f64,
    pub(super) p10: f64,
    pub(super) p90: f64,
}

impl Stats {
    /// Nothing, if there are no samples.
    pub(super) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            count: sorted.len(),
            median: quantile(&sorted, 1, 2)?,
            p10: quantile(&sorted, 1, 10)?,
            p90: quantile(&sorted, 9, 10)?,
        })
    }
}

/// The `part`/`whole` quantile of sorted samples, halfway between neighbours where it falls there.
fn quantile(sorted: &[f64], part: usize, whole: usize) -> Option<f64> {
    let steps = sorted.len().checked_sub(1)? * part;
    let (at, rest) = (steps / whole, steps % whole);
    let low = sorted.get(at)?;
    let high = sorted.get(at + 1).unwrap_or(low);
    let share = f64::from(u32::try_from(rest).ok()?) / f64::from(u32::try_from(whole).ok()?);
    Some(low + (high - low) * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(samples: &[f64], expect: [f64; 3]) {
        let stats = Stats::of(samples).unwrap();
        assert_eq!([stats.p10, stats.median, stats.p90], expect);
        assert_eq!(stats.count, samples.len());
    }

    #[test]
    fn quantiles_of_few_and_of_unsorted_samples() {
        check(&[7.0], [7.0, 7.0, 7.0]);
        check(&[4.0, 2.0], [2.2, 3.0, 3.8]);
        check(&[10.0, 0.0, 5.0, 2.5, 7.5, 1.0, 9.0, 3.0, 6.0, 8.0, 4.0], [1.0, 5.0, 9.0]);
        assert_eq!(Stats::of(&[]), None);
    }
}
