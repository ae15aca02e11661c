//! The program that tests of the engine start as broker, screen or supervisor. It is not shipped.
//!
//! A test binary cannot be this program, because the test harness provides its `main`.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "this is a program, which reads its environment and clock itself"
)]

use std::error::Error;
use std::sync::Arc;

use belljar_engine::clock::Clock;
use belljar_engine::host::HostEnv;
use belljar_engine::notice::Silent;
use belljar_engine::roles::Role;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args_os().next().unwrap_or_default();
    let role = Role::parse(&name)
        .ok_or_else(|| format!("argv[0] {:?} is not the name of a role", name.display()))?;
    let host = HostEnv::new(std::env::vars_os(), std::env::current_exe()?);
    Ok(role.run(host, Clock::new(std::time::SystemTime::now), Arc::new(Silent))?)
}
