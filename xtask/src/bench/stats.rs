//! Median and quantiles of samples.

/// The number, median, 10th and 90th percentile of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stats {
    pub(super) count: usize,
    pub(super) median: f64,
    pub(super) p10: f64,
    pub(super) p90: f64,
}

impl Stats {
    /// Returns the statistics of samples; `None` if there are no samples.
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

/// Returns the `part`/`whole` quantile of sorted samples, with linear interpolation.
fn quantile(sorted: &[f64], part: usize, whole: usize) -> Option<f64> {
    let steps = sorted.len().checked_sub(1)? * part;
    let (index, rest) = (steps / whole, steps % whole);
    let low = sorted.get(index)?;
    let high = sorted.get(index + 1).unwrap_or(low);
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
    fn stats_accept_few_samples_and_unsorted_samples() {
        check(&[7.0], [7.0, 7.0, 7.0]);
        check(&[4.0, 2.0], [2.2, 3.0, 3.8]);
        check(&[10.0, 0.0, 5.0, 2.5, 7.5, 1.0, 9.0, 3.0, 6.0, 8.0, 4.0], [1.0, 5.0, 9.0]);
        assert_eq!(Stats::of(&[]), None);
    }
}
