//! The wall clock that the embedding program passes to the engine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use belljar_model::RunId;

use crate::error::{EngineError, ErrorKind, WithKind as _};

/// The wall clock: a function that returns the current time.
#[derive(Clone, Copy, Debug)]
pub struct Clock(fn() -> SystemTime);

impl Clock {
    pub const fn new(now: fn() -> SystemTime) -> Self {
        Self(now)
    }

    /// Returns the function that reads the clock, for code that must not allocate.
    pub const fn function(self) -> fn() -> SystemTime {
        self.0
    }

    pub fn now(self) -> SystemTime {
        (self.0)()
    }

    /// Returns the time since the Unix epoch, or zero if the clock is set before the epoch.
    pub fn since_epoch(self) -> Duration {
        self.now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    /// Returns the current time in milliseconds since the Unix epoch.
    pub fn millis(self) -> u64 {
        u64::try_from(self.since_epoch().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the current time in nanoseconds since the Unix epoch.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.since_epoch().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Creates a run id from the current time, and returns it with an additional random number.
    pub fn new_id(self) -> Result<(RunId, u32), EngineError> {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .context("cannot get random bytes from the kernel")
            .kind(ErrorKind::CannotStart)?;
        let [a, b, c, d, e, f, g, h] = random;
        let id = RunId::new(self.millis(), u32::from_ne_bytes([a, b, c, d]));
        Ok((id, u32::from_ne_bytes([e, f, g, h])))
    }
}
