//! The program that the engine's tests start for brokers, screens and supervisors. It is not shipped.
//!
//! A test binary cannot be that program: the test harness owns its `main`.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "a program of its own reads its environment and clock"
)]

use std::error::Error;
use std::sync::Arc;

use belljar_engine::clock::Clock;
use belljar_engine::host::HostEnv;
use belljar_engine::notice::Silent;
use belljar_engine::roles::Role;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args_os().next().unwrap_or_default();
    let role = Role::parse(&name).ok_or_else(|| format!("{} names no role", name.display()))?;
    let host = HostEnv::new(std::env::vars_os(), std::env::current_exe()?);
    Ok(role.run(host, Clock::new(std::time::SystemTime::now), Arc::new(Silent))?)
}
