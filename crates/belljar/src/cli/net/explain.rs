//! What can be typed after `belljar net explain`.

use belljar_model::Net;
use belljar_model::net::{Allow, Method, Rule, SecretName};
use clap::Args;

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
    /// As with `belljar run`
    #[arg(long, value_name = "NET")]
    pub(crate) net: Option<Net>,
    /// As with `belljar run`
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<Allow>,
    /// As with `belljar run`
    #[arg(long, value_name = "RULE", value_parser = Rule::deny)]
    pub(crate) deny: Vec<Rule>,
    /// As with `belljar run`
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<SecretName>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
