//! `cargo xtask COMMAND`: the development commands of this repository: test, tidy, attack, bench, fuzz
//! and dist.
//!
//! Each command has its own file. This program is not part of Belljar, and Belljar never calls it.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints")]
#![expect(
    clippy::disallowed_methods,
    reason = "the tool starts programs and reads the environment"
)]

mod attack;
mod bench;
mod clients;
mod dist;
mod fuzz;
mod logs;
mod packages;
mod shell;
mod skips;
mod steps;
mod test;
mod tidy;
mod times;
mod user;

use std::process::ExitCode;

const HELP: &str = "\
The development commands of this repository.

Usage: cargo xtask COMMAND [ARGS]

  test [FILTER] [--no-install]   run all checks of CI; with FILTER only the tests whose name contains it
  tidy                           check the rules of this repository that no compiler checks
  attack [ID…]                   run the attack suite with the release binary, as root and as a plain user
  bench [NAME…]                  measure Belljar and comparable tools in one run
  fuzz [TARGET] [--seconds 60]   fuzz the parsers of untrusted input
  dist [--sign KEY] [--check]    put the packages of a release into target/bundle/packages

Run `cargo xtask COMMAND --help` for the options of a command.
";

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if args.is_empty() {
        eprint!("{HELP}");
        return ExitCode::from(2);
    }
    let command = args.remove(0);
    let result = match command.as_str() {
        "test" => test::main(&args),
        "tidy" => tidy::main(&args),
        "bench" => bench::main(&args),
        "fuzz" => fuzz::main(&args),
        "attack" => attack::main(&args),
        "dist" => dist::main(&args),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => {
            Err(anyhow::anyhow!("unknown command `{other}`; run `cargo xtask --help` for a list"))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {command}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
