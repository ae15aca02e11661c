//! Arguments of `belljar net explain`.

use belljar_model::net::Method;
use clap::Args;

use crate::cli::NetworkArgs;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar net explain https://api.github.com/user --allow github --secret github
  belljar net explain tcp://db.internal:5432 --template build")]
pub(crate) struct ExplainArgs {
    /// URL of the request: https://HOST/PATH or https://HOST:PORT/PATH, http://, wss:// or tcp://HOST:PORT
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Method of the request
    #[arg(long, short = 'X', value_name = "METHOD", default_value = "GET")]
    pub(crate) method: Method,
    /// Template of belljar.toml with the rules
    #[arg(long, value_name = "NAME", default_value = belljar_model::DEFAULT_TEMPLATE)]
    pub(crate) template: String,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
