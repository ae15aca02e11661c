//! `belljar net explain`: shows which rule decides about a request, without sending the request.

use belljar_engine::config;
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::policy::explain::explain;
use belljar_model::display;
use belljar_model::net::RequestLine;

use crate::cli::Cli;
use crate::cli::net::explain::ExplainArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope::host;

/// Runs `belljar net explain`.
pub(crate) fn run(cli: &Cli, args: &ExplainArgs) -> Outcome {
    let request = RequestLine::new(&args.url, &args.method).kind(ErrorKind::Invalid)?;
    let (config, _) =
        config::load_from(host(), cli.config.as_deref(), std::env::current_dir().ok().as_deref())?;
    let template = config::template(&config, &args.template)?;
    let template = template.with(args.network.overrides()).kind(ErrorKind::Invalid)?;
    let explanation = explain(&config, &template, &request, host().user_home().as_deref())?;
    if args.json {
        print::json(&explanation).kind(ErrorKind::Broken)?;
    } else {
        print::out(&display::safe_multiline(explanation.text())).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}
