//! The clock of file timestamps, which tells whether a file changed before or after the start of a box.

use std::time::{Duration, Instant};

use belljar_model::Clock;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The pause between two readings of the clock. The clock advances every 1 to 10 ms.
const PAUSE: Duration = Duration::from_micros(200);

/// Returns the coarse clock, which is the lowest timestamp that a file can get from now on.
pub fn file_clock() -> Clock {
    let coarse = clock_gettime(ClockId::RealtimeCoarse);
    Clock { secs: coarse.tv_sec, nanos: u32::try_from(coarse.tv_nsec).unwrap_or(0) }
}

/// Returns the coarse clock as soon as it is later than every timestamp of a file that changed before `start`.
///
/// The kernel gives some files a timestamp of the exact clock, which is up to one tick ahead of the coarse
/// clock. With a coarse clock that is too early, such a file would seem to have changed after the start.
pub fn file_clock_after(start: Instant) -> Clock {
    loop {
        let clock = file_clock();
        // Measured before the exact clock is read, so that `exact - elapsed` is not before the start.
        let elapsed = start.elapsed();
        let exact = clock_gettime(ClockId::Realtime);
        if nanos_between(clock, exact) < i128::try_from(elapsed.as_nanos()).unwrap_or(i128::MAX) {
            return clock;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns by how many nanoseconds the exact clock is ahead of the coarse clock.
fn nanos_between(coarse: Clock, exact: Timespec) -> i128 {
    let nanos = |secs: i64, nanos: i128| i128::from(secs) * 1_000_000_000 + nanos;
    nanos(exact.tv_sec, exact.tv_nsec.into()) - nanos(coarse.secs, coarse.nanos.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use super::*;

    /// Writes to a file and returns its change time. A file that was just read gets an exact timestamp.
    fn change(path: &Path) -> Clock {
        fs::metadata(path).unwrap();
        fs::write(path, "content").unwrap();
        let meta = fs::metadata(path).unwrap();
        Clock { secs: meta.ctime(), nanos: meta.ctime_nsec().try_into().unwrap() }
    }

    #[test]
    fn file_clock_after_is_later_than_earlier_changes_and_not_later_than_later_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        let mut not_later = 0;
        for _ in 0..300 {
            let before = change(&path);
            not_later += u32::from(file_clock() <= before);
            let clock = file_clock_after(Instant::now());
            assert!(clock > before, "{clock:?} {before:?}");
            let after = change(&path);
            assert!(clock <= after, "{clock:?} {after:?}");
        }
        assert!(not_later > 0, "control: the coarse clock alone is not later than a recent change");
    }

    #[test]
    fn file_clock_after_an_earlier_start_does_not_wait_for_the_next_tick() {
        let start = Instant::now();
        let first = file_clock_after(start);
        // The clock is later than the start already, so the next call returns the clock as it is.
        let (before, again) = (file_clock(), file_clock_after(start));
        assert!(first <= before && before <= again && again <= file_clock());
    }
}
