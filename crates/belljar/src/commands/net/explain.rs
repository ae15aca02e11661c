//! `belljar net explain`: which rule decides about a request, and why. Nothing is sent.

use belljar_engine::config;
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::policy::explain::{Asked, explain};
use belljar_model::display;

use crate::cli::Cli;
use crate::cli::net::explain::ExplainArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope::host;

pub(crate) fn run(cli: &Cli, args: &ExplainArgs) -> Outcome {
    let asked = Asked::parse(&args.url, &args.method)?;
    let (config, _) =
        config::load_from(host(), cli.config.as_deref(), std::env::current_dir().ok().as_deref())?;
    let template = config::template(&config, &args.template)?;
    let template = template.with(args.network.overrides()).kind(ErrorKind::Invalid)?;
    let answer = explain(&config, &template, &asked, host().user_home().as_deref())?;
    if args.json {
        print::json(&answer).kind(ErrorKind::Broken)?;
    } else {
        print::out(&display::safe_multiline(answer.text())).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}
