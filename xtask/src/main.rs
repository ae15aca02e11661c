//! `cargo xtask COMMAND`: everything that is done *to* this tree rather than *by* it.
//!
//! One file per command. Nothing here is linked into Belljar, and Belljar never calls it.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool that talks to its terminal")]
#![expect(clippy::disallowed_methods, reason = "it starts programs and reads the environment")]

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
The project's own commands.

Usage: cargo xtask COMMAND [ARGS]

  test [FILTER] [--no-install]   everything CI does; with FILTER only the tests whose name contains it
  tidy                           the rules of this tree that no compiler checks
  attack [ID…]                   the attack suite with the shipped binary, as root and as a plain user
  bench [NAME…]                  our numbers beside those of our peers, in one run
  fuzz [TARGET] [--seconds 60]   throw bytes at the parsers of what comes from outside
  dist                           shipped binary, completions and man page into target/bundle

`cargo xtask COMMAND --help` says more.
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
        other => Err(anyhow::anyhow!("no command `{other}`; `cargo xtask --help` lists them")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {command}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
