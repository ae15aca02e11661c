//! A token bucket, stored as one instant.
//!
//! The bucket holds as many requests as the rate allows, and gains one after each `per / count`.
//! Instead of the level, it stores the time at which the bucket is full again.

use std::time::{Duration, Instant};

use belljar_model::net::Rate;

#[derive(Debug)]
pub(super) struct TokenBucket {
    each: Duration,
    per: Duration,
    full: Option<Instant>,
}

impl TokenBucket {
    pub(super) fn new(rate: Rate) -> Self {
        Self { each: rate.per / rate.count.max(1), per: rate.per, full: None }
    }

    /// Counts one request towards the rate limit, or returns the time to wait.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let full = self.full.map_or(now, |full| full.max(now)) + self.each;
        let wait = full.duration_since(now).saturating_sub(self.per);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.full = Some(full);
        Ok(())
    }
}
