//! Wall time, as the embedding program tells it. The engine never reads a clock of its own.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use belljar_model::RunId;

use crate::error::{EngineError, ErrorKind, WithKind as _};

/// Tells the wall time.
#[derive(Clone, Copy, Debug)]
pub struct Clock(fn() -> SystemTime);

impl Clock {
    pub const fn new(now: fn() -> SystemTime) -> Self {
        Self(now)
    }

    /// The function itself, for code that must not allocate.
    pub const fn function(self) -> fn() -> SystemTime {
        self.0
    }

    pub fn now(self) -> SystemTime {
        (self.0)()
    }

    /// Time since the Unix epoch; zero before it.
    pub fn since_epoch(self) -> Duration {
        self.now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    /// Milliseconds since the Unix epoch.
    pub fn millis(self) -> u64 {
        u64::try_from(self.since_epoch().as_millis()).unwrap_or(u64::MAX)
    }

    /// Nanoseconds since the Unix epoch.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.since_epoch().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A new id, and a random number that goes with it.
    pub fn new_id(self) -> Result<(RunId, u32), EngineError> {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .context("get random bytes")
            .kind(ErrorKind::CannotStart)?;
        let [a, b, c, d, e, f, g, h] = random;
        let id = RunId::new(self.millis(), u32::from_ne_bytes([a, b, c, d]));
        Ok((id, u32::from_ne_bytes([e, f, g, h])))
    }
}
