//! Converts durations for system calls. See timespec(3type).

use std::time::Duration;

use rustix::time::Timespec;

/// Converts a duration to a `Timespec` for a system call. A duration beyond the kernel's range
/// becomes its maximum.
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
    fn timespec_keeps_nanoseconds_and_limits_seconds_to_the_kernel_range() {
        for (duration, tv_sec, tv_nsec) in [
            (Duration::ZERO, 0, 0),
            (Duration::new(1, 999_999_999), 1, 999_999_999),
            (Duration::MAX, i64::MAX, 999_999_999),
        ] {
            assert_eq!(timespec(duration), Timespec { tv_sec, tv_nsec });
        }
    }
}
