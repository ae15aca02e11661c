//! `belljar completions` and `belljar man`: print the completion script and the manual page.

use std::path::Path;

use anyhow::Context as _;

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

/// Prints the manual page in roff format, or writes the pages of all commands to a directory.
pub(crate) fn man(to: Option<&Path>) -> Outcome {
    if let Some(dir) = to {
        clap_mangen::generate_to(cli::command(), dir)
            .with_context(|| format!("cannot write manual pages to {}", dir.display()))
            .kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(cli::command()).render(&mut page).kind(ErrorKind::Broken)?;
    print::out(&String::from_utf8_lossy(&page)).kind(ErrorKind::Broken)?;
    Ok(0)
}
