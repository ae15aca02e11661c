//! The binary `belljar`: parses the arguments and runs one command, or one role of the engine.
//!
//! Only this crate prints and reads the environment and the clock.

#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "the binary reads the environment and the clock")]

mod cli;
mod commands;
mod exit;
mod interrupt;
mod log;
mod print;
mod prompt;
mod scope;
mod spec;
mod terminal;

use std::process::ExitCode;
use std::sync::Arc;

use clap::FromArgMatches as _;

use crate::cli::{Cli, Command};
use crate::print::Printer;
use crate::scope::{CLOCK, host};
use belljar_engine::error::EngineError;
use belljar_engine::roles::Role;

fn main() -> ExitCode {
    let role = std::env::args_os().next().and_then(|name| Role::parse(&name));
    if let Err(error) = log::start(host(), role) {
        return failed(&error);
    }
    if let Some(role) = role {
        let done = role.run(host().clone(), CLOCK, Arc::new(Printer));
        // Errors are reported over the socket of the role.
        return done
            .map_or_else(|error| ExitCode::from(exit::code(error.kind())), |()| ExitCode::SUCCESS);
    }
    let parsed = cli::command().try_get_matches().and_then(|matches| {
        let name = matches.subcommand_name().unwrap_or_default().to_owned();
        Ok((
            Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut cli::command()))?,
            name,
        ))
    });
    let (cli, name) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return ExitCode::from(print::usage(&error)),
    };
    let span = tracing::error_span!("command", command = name);
    let _entered = span.enter();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "command started");
    let outcome = match &cli.command {
        Command::Run(args) => commands::run::run(&cli, args),
        Command::Up(args) => commands::up::run(&cli, args),
        Command::List(args) => commands::boxes::list(args),
        Command::Status(args) => commands::boxes::status(args),
        Command::Stop(args) => commands::boxes::stop(args),
        Command::Start(args) => commands::boxes::start(args),
        Command::Restart(args) => commands::boxes::restart(args),
        Command::Attach(args) => commands::attach::run(args),
        Command::Exec(args) => commands::exec::run(args),
        Command::Shell(args) => commands::exec::shell(args),
        Command::Logs(args) => commands::logs::run(args),
        Command::Cp(args) => commands::cp::run(args),
        Command::Forward(args) => commands::forward::run(args),
        Command::Ui => commands::ui::run(),
        Command::Down(args) => commands::boxes::down(args),
        Command::Snapshot(args) => commands::snapshots::snapshot(args),
        Command::Fork(args) => commands::snapshots::fork(args),
        Command::Reset(args) => commands::snapshots::reset(args),
        Command::Restore(args) => commands::restore::run(args),
        Command::Agent(args) => commands::agent::run(&cli, args),
        Command::Policy(args) => commands::policy::run(&cli, args),
        Command::Gc(args) => commands::gc::run(args),
        Command::Network(args) => commands::network::run(args),
        Command::Approve(args) => commands::approve::run(args),
        Command::Api(args) => commands::api::run(&cli, args),
        Command::Code(args) => commands::code::run(&cli, args),
        Command::Diff(args) => commands::diff::run(args),
        Command::Apply(args) => commands::apply::run(&cli, args),
        Command::Discard(args) => commands::discard::run(args),
        Command::Runs(args) => commands::runs::run(&cli, args),
        Command::Submit(args) => commands::submit::run(&cli, args),
        Command::Watch(args) => commands::watch::run(args),
        Command::Cancel(args) => commands::runs::cancel(args),
        Command::Resume(args) => commands::resume::run(args),
        Command::Plan(args) => commands::plan::run(&cli, args),
        Command::Schedule(args) => commands::schedule::run(&cli, args),
        Command::Init(args) => commands::init::run(&cli, args),
        Command::Demo(args) => commands::demo::run(args),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::Ledger(args) => commands::ledger::run(args),
        Command::Mcp(args) => commands::mcp::run(&cli, args),
        Command::Serve(args) => commands::serve::run(&cli, args),
        Command::LoginLink(args) => commands::serve::login_link(args),
        Command::Tenant(args) => commands::serve::tenant(&cli, args),
        Command::Net(args) => commands::net::run(&cli, args),
        Command::Secret(args) => commands::secret::run(&cli, args),
        Command::Skill(args) => commands::skill::run(&cli, args),
        Command::Template(args) => commands::template::run(&cli, args),
        Command::Completions { shell } => commands::completions::run(*shell),
        Command::Man { to } => commands::completions::man(to.as_deref()),
    };
    match outcome {
        Ok(code) => {
            tracing::info!(code, "command ended");
            ExitCode::from(code)
        }
        Err(error) => {
            tracing::warn!(kind = ?error.kind(), "command failed");
            failed(&error)
        }
    }
}

fn failed(error: &EngineError) -> ExitCode {
    print::error(error);
    ExitCode::from(exit::code(error.kind()))
}
