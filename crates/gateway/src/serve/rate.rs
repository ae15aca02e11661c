//! Limits how often a client may do something: a bucket of requests that fills up again over time.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The number of keys above which full buckets are forgotten.
const MAX_KEYS: usize = 10_000;

/// A limit: so many at once, and so many per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) burst: u32,
    /// The time in which one more becomes available.
    pub(crate) interval: Duration,
}

impl Rate {
    pub(crate) const fn per_second(count: u32, burst: u32) -> Self {
        Self { burst, interval: Duration::from_nanos(1_000_000_000 / count as u64) }
    }

    pub(crate) const fn per_minute(count: u32) -> Self {
        Self { burst: count, interval: Duration::from_millis(60_000 / count as u64) }
    }
}

/// The buckets of many clients. An unknown client has a full bucket.
#[derive(Debug)]
pub(crate) struct Buckets<K> {
    rate: Rate,
    /// The time at which the bucket of a client is full again.
    full_at: HashMap<K, Instant>,
}

impl<K: Eq + Hash> Buckets<K> {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, full_at: HashMap::new() }
    }

    /// Takes one from the bucket. If the bucket is empty, returns the time until it has one again.
    pub(crate) fn take(&mut self, key: K, now: Instant) -> Result<(), Duration> {
        if self.full_at.len() > MAX_KEYS {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        let size = self.rate.interval * self.rate.burst;
        let full_at = self.full_at.get(&key).map_or(now, |full_at| (*full_at).max(now));
        let next = full_at + self.rate.interval;
        match (next - now).checked_sub(size) {
            None | Some(Duration::ZERO) => {
                self.full_at.insert(key, next);
                Ok(())
            }
            Some(wait) => Err(wait),
        }
    }
}

/// Rounds the time until the next request up to whole seconds, for `Retry-After`.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_allows_the_burst_and_then_one_per_interval() {
        let mut buckets = Buckets::new(Rate::per_second(10, 3));
        let start = Instant::now();
        for _ in 0..3 {
            buckets.take("a", start).unwrap();
        }
        assert_eq!(buckets.take("a", start), Err(Duration::from_millis(100)));
        buckets.take("b", start).unwrap(); // another client
        let later = start + Duration::from_millis(100);
        buckets.take("a", later).unwrap();
        assert_eq!(buckets.take("a", later), Err(Duration::from_millis(100)));
        let much_later = start + Duration::from_secs(60);
        for _ in 0..3 {
            buckets.take("a", much_later).unwrap();
        }
        buckets.take("a", much_later).unwrap_err();
    }

    #[test]
    fn full_buckets_of_many_clients_are_forgotten() {
        let mut buckets = Buckets::new(Rate::per_minute(5));
        let start = Instant::now();
        for key in 0..=MAX_KEYS {
            buckets.take(key, start).unwrap();
        }
        buckets.take(0, start + Duration::from_secs(3600)).unwrap();
        assert_eq!(buckets.full_at.len(), 1);
    }

    #[test]
    fn wait_is_rounded_up_to_whole_seconds() {
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(2)), 2);
    }
}
