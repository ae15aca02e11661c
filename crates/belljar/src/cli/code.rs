//! What can be typed after `belljar code`.

use std::path::PathBuf;

use belljar_model::Mode;
use belljar_model::code::ApiName;
use clap::{Args, ValueHint};

use belljar_engine::programs::Language;

#[derive(Debug, Args)]
#[command(after_help = "Try:  echo 'console.log(1 + 1)' | belljar code
      belljar code report.ts --api github --input '{\"repo\":\"acme/x\"}'

The result of a program is its `export default`, what it returns at the top, or its last expression.")]
pub(crate) struct CodeArgs {
    /// The program; `-` or nothing is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// ts, js, py, sh, deno or node [default: by the file's name, else ts]
    #[arg(long, visible_alias = "language", value_name = "LANG")]
    pub(crate) lang: Option<Language>,
    /// Give it only this declared service; may be repeated [default: all]
    #[arg(long = "api", value_name = "NAME")]
    pub(crate) apis: Vec<ApiName>,
    /// Give it no service at all
    #[arg(long, conflicts_with = "apis")]
    pub(crate) no_apis: bool,
    /// JSON that the program finds as `input`
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// Stop it after so many seconds, from 1 to 600
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
    /// The directory that it sees at /workspace [default: an empty one]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// With --workspace: overlay or read-only [default: overlay]
    #[arg(long, value_name = "MODE", requires = "workspace")]
    pub(crate) mode: Option<Mode>,
    /// Print one JSON object about the run and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// List the languages that boxes on this machine have, and stop
    #[arg(long, exclusive = true)]
    pub(crate) languages: bool,
}
