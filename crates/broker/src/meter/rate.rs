//! A token bucket, as one instant.
//!
//! The bucket holds as many requests as the rate has, and one comes back after each
//! `per / count`. Instead of a level it keeps when the bucket would be full again.

use std::time::{Duration, Instant};

use belljar_model::net::Rate;

#[derive(Debug)]
pub(super) struct Pace {
    each: Duration,
    per: Duration,
    full: Option<Instant>,
}

impl Pace {
    pub(super) fn new(rate: Rate) -> Self {
        Self { each: rate.per / rate.count.max(1), per: rate.per, full: None }
    }

    /// Takes one request out, or tells how long to wait for it.
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
