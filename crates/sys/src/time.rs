//! Durations as the kernel takes them. See timespec(3type).

use std::time::Duration;

use rustix::time::Timespec;

/// A duration for a system call; one that is too long for the kernel is the longest it takes.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_keeps_its_nanoseconds_and_is_limited_to_the_range_of_the_kernel() {
        for (duration, tv_sec, tv_nsec) in [
            (Duration::ZERO, 0, 0),
            (Duration::new(1, 999_999_999), 1, 999_999_999),
            (Duration::MAX, i64::MAX, 999_999_999),
        ] {
            assert_eq!(timespec(duration), Timespec { tv_sec, tv_nsec });
        }
    }
}
