//! The static program that is embedded into `belljar`. Its role is PID 1 of a box, the janitor, or the
//! helper for files in a box.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().next() {
        Some(role) if role == "belljar-init" => belljar_init::run(),
        Some(role) if role == "belljar-janitor" => belljar_init::janitor::run(),
        Some(role) if role == belljar_init::files::ROLE => belljar_init::files::run(),
        _ => ExitCode::from(2),
    }
}
