//! What can be typed after `belljar net explain`.

use belljar_model::net::Method;
use clap::Args;

use crate::cli::NetworkArgs;

#[derive(Debug, Args)]
#[command(
    after_help = "Try:  belljar net explain https://api.github.com/user --allow github --secret github
      belljar net explain tcp://db.internal:5432 --template build"
)]
pub(crate) struct ExplainArgs {
    /// What a box would ask for: https://HOST/PATH or https://HOST:PORT/PATH, http://, wss://, tcp://HOST:PORT
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// The method of the request
    #[arg(long, short = 'X', value_name = "METHOD", default_value = "GET")]
    pub(crate) method: Method,
    /// The template of belljar.toml whose rules are asked
    #[arg(long, value_name = "NAME", default_value = belljar_model::DEFAULT_TEMPLATE)]
    pub(crate) template: String,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
