//! Which ended execs a supervisor keeps: those of the last day, as far as there is room for them.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use crate::supervisor::exec_protocol::ExecId;

/// The time for which an ended exec is kept.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum number of ended execs that are kept.
const MAX_ENDED: usize = 256;
/// The maximum number of bytes of output that all ended execs keep.
const MAX_OUTPUT: usize = 16 << 20;

/// An exec that has ended.
#[derive(Clone, Debug)]
pub(super) struct EndedExec {
    pub(super) id: ExecId,
    pub(super) at: Instant,
    /// The number of kept bytes of output.
    pub(super) output: usize,
}

/// What the limits demand.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Excess {
    /// Execs that are too old or too many.
    pub(super) removed: Vec<ExecId>,
    /// Execs whose output is discarded. Their end is still known.
    pub(super) without_output: Vec<ExecId>,
}

/// Returns the time at which the oldest of these execs is too old.
pub(super) fn next_expiry(ended: &[EndedExec]) -> Option<Instant> {
    ended.iter().map(|exec| exec.at).min().map(|at| at + LIFETIME)
}

/// Returns the execs above the limits. The newest ones are kept.
pub(super) fn excess(mut ended: Vec<EndedExec>, now: Instant) -> Excess {
    ended.sort_unstable_by_key(|exec| Reverse((exec.at, exec.id)));
    let (mut excess, mut output) = (Excess::default(), 0);
    for (newer, EndedExec { id, at, output: own }) in ended.into_iter().enumerate() {
        if newer >= MAX_ENDED || at + LIFETIME <= now {
            excess.removed.push(id);
            continue;
        }
        output += own;
        if output > MAX_OUTPUT {
            excess.without_output.push(id);
        }
    }
    excess
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> ExecId {
        ExecId(u128::try_from(number).unwrap().to_be_bytes())
    }

    /// Returns execs of which each ended a second after the one before.
    fn execs(count: usize, output: usize, start: Instant) -> Vec<EndedExec> {
        let exec = |number| {
            let at = start + Duration::from_secs(u64::try_from(number).unwrap());
            EndedExec { id: id(number), at, output }
        };
        (0..count).map(exec).collect()
    }

    #[test]
    fn ended_execs_are_removed_after_a_day_and_above_their_number() {
        let start = Instant::now();
        let now = start + Duration::from_secs(1000);
        assert_eq!(excess(execs(256, 0, start), now), Excess::default());
        let removed = excess(execs(258, 0, start), now).removed;
        assert_eq!(removed, [id(1), id(0)], "the oldest");
        let few = execs(3, 0, start);
        let next = next_expiry(&few).unwrap();
        assert_eq!(next, start + LIFETIME);
        assert_eq!(excess(few.clone(), next - Duration::from_nanos(1)), Excess::default());
        assert_eq!(excess(few, next).removed, [id(0)]);
        assert_eq!(next_expiry(&[]), None);
    }

    #[test]
    fn oldest_output_is_discarded_first_and_all_ends_stay_known() {
        let start = Instant::now();
        let found = excess(execs(20, 1 << 20, start), start + Duration::from_secs(60));
        assert_eq!(found.removed, []);
        assert_eq!(found.without_output, [id(3), id(2), id(1), id(0)]);
    }
}
