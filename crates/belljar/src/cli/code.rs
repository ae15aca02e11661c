//! Arguments of `belljar code`.

use std::path::PathBuf;

use belljar_model::Mode;
use belljar_model::code::ApiName;
use clap::{Args, ValueHint};

use belljar_engine::programs::Language;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar code hello.ts
  belljar code report.ts --api github --input '{\"repo\":\"acme/x\"}'

The result of a program is its `export default`, the value of a top-level `return`, or its last expression.")]
pub(crate) struct CodeArgs {
    /// File with the program; `-` is standard input [default: -]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// Language: ts, js, py, sh, deno or node [default: by file name, else ts]
    #[arg(long, visible_alias = "language", value_name = "LANG")]
    pub(crate) lang: Option<Language>,
    /// Let the program call only this declared service; can be repeated [default: all]
    #[arg(long = "api", value_name = "NAME")]
    pub(crate) apis: Vec<ApiName>,
    /// Let the program call no service
    #[arg(long, conflicts_with = "apis")]
    pub(crate) no_apis: bool,
    /// JSON value of the variable `input` of the program
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// Kill the program after this many seconds, from 1 to 600
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
    /// Directory to show at /workspace in the box [default: an empty directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// With --workspace: workspace mode, overlay or read-only [default: overlay]
    #[arg(long, value_name = "MODE", requires = "workspace")]
    pub(crate) mode: Option<Mode>,
    /// Print one JSON object about the run, and no other output
    #[arg(long)]
    pub(crate) json: bool,
    /// List the languages that are available in boxes on this machine, and exit
    #[arg(long, exclusive = true)]
    pub(crate) languages: bool,
}
