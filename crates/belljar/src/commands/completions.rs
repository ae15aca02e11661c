//! `belljar completions SHELL` and `belljar man`.

use clap::CommandFactory;

use crate::cli::Cli;
use crate::failure::{Code, FAILED, Outcome};
use crate::print;

pub(crate) fn run(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "belljar", &mut script);
    print::out(&String::from_utf8_lossy(&script)).code(FAILED)?;
    Ok(0)
}

pub(crate) fn man() -> Outcome {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).code(FAILED)?;
    print::out(&String::from_utf8_lossy(&page)).code(FAILED)?;
    Ok(0)
}
