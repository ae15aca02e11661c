//! `belljar completions` and `belljar man`: print the completion script and the manual page.

use crate::cli;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{ErrorKind, WithKind as _};

/// Prints the completion script for a shell.
pub(crate) fn run(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "belljar", &mut script);
    print::out(&String::from_utf8_lossy(&script)).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Prints the manual page in roff format.
pub(crate) fn man() -> Outcome {
    let mut page = Vec::new();
    clap_mangen::Man::new(cli::command()).render(&mut page).kind(ErrorKind::Broken)?;
    print::out(&String::from_utf8_lossy(&page)).kind(ErrorKind::Broken)?;
    Ok(0)
}
