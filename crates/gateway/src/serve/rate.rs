//! Limits how often a client may do something: a bucket of requests that fills up again over time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{HeaderMap, HeaderName};
use http::{HeaderValue, Method};
use tokio::time::Instant;

/// The limit of the sender and what is left of it, as the IETF draft `RateLimit header fields for HTTP` says.
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The number of keys above which full buckets are forgotten.
const MAX_KEYS: usize = 10_000;

/// A limit: so many at once, and so many per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub burst: u32,
    /// The time in which one more becomes available.
    pub interval: Duration,
}

impl Rate {
    pub const fn per_second(count: u32, burst: u32) -> Self {
        Self { burst, interval: Duration::from_nanos(1_000_000_000 / count as u64) }
    }

    pub const fn per_minute(count: u32) -> Self {
        Self { burst: count, interval: Duration::from_millis(60_000 / count as u64) }
    }
}

/// A kind of request with a limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Read,
    Write,
}

impl RequestKind {
    pub(crate) fn of(method: &Method) -> Self {
        if matches!(*method, Method::GET | Method::HEAD) { Self::Read } else { Self::Write }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
        }
    }
}

/// What is left of a limit after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remaining {
    pub(crate) requests: u32,
    /// The time until the complete limit is available again.
    pub(crate) full_in: Duration,
}

/// The limit that a request counted against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateState {
    pub(crate) kind: RequestKind,
    pub(crate) rate: Rate,
    pub(crate) remaining: Remaining,
}

/// The place where the check of the rate leaves the state for the response.
pub(crate) type RateCell = Arc<OnceLock<RateState>>;

impl RateState {
    /// Adds the headers that tell the client its limit.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        let Self { kind, rate, remaining } = self;
        let name = kind.name();
        let window = whole_seconds(rate.interval * rate.burst).max(1);
        let left = whole_seconds(remaining.full_in);
        let policy = format!("\"{name}\";q={};w={window}", rate.burst);
        let state = format!("\"{name}\";r={};t={left}", remaining.requests);
        for (name, value) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, state)] {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        }
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

    pub(crate) const fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes one from the bucket. If the bucket is empty, returns the time until it has one again.
    pub(crate) fn take(&mut self, key: K, now: Instant) -> Result<Remaining, Duration> {
        if self.full_at.len() > MAX_KEYS {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        let size = self.rate.interval * self.rate.burst;
        let full_at = self.full_at.get(&key).map_or(now, |full_at| (*full_at).max(now));
        let next = full_at + self.rate.interval;
        match (next - now).checked_sub(size) {
            None | Some(Duration::ZERO) => {
                self.full_at.insert(key, next);
                let left = size.saturating_sub(next - now).as_nanos();
                let interval = self.rate.interval.as_nanos().max(1);
                let requests = u32::try_from(left / interval).unwrap_or(u32::MAX);
                Ok(Remaining { requests, full_in: next - now })
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
        for left in [2, 1, 0] {
            let full_in = Duration::from_millis(100) * (3 - left);
            let expected = Remaining { requests: left, full_in };
            assert_eq!(buckets.take("a", start), Ok(expected));
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
    fn headers_have_the_limit_and_what_is_left_of_it() {
        let remaining = Remaining { requests: 199, full_in: Duration::from_millis(20) };
        let rate = Rate::per_second(50, 200);
        let mut headers = HeaderMap::new();
        RateState { kind: RequestKind::Read, rate, remaining }.add_to(&mut headers);
        assert_eq!(headers[RATE_LIMIT_POLICY], "\"reads\";q=200;w=4");
        assert_eq!(headers[RATE_LIMIT], "\"reads\";r=199;t=1");
    }

    #[test]
    fn wait_is_rounded_up_to_whole_seconds() {
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(2)), 2);
    }
}
