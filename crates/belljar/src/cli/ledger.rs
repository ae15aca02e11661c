//! Arguments of `belljar ledger`.

use std::path::PathBuf;

use belljar_ledger::Event;
use clap::builder::PossibleValue;
use clap::{ArgGroup, Args, Subcommand, ValueHint};

use crate::cli::when::When;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger log --limit 20
  belljar ledger show 17
  belljar ledger verify --deep
  belljar ledger receipt my-run -o my-run.receipt")]
pub(crate) struct LedgerArgs {
    #[command(subcommand)]
    pub(crate) command: LedgerCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// List events, oldest first
    Log(LogArgs),
    /// Show one event with its causes, effects and bodies
    Show(ShowArgs),
    /// Check one recorded body (content) and print it
    Get(GetArgs),
    /// Show the events of a run step by step
    Replay(ReplayArgs),
    /// Check that the ledger was not changed, truncated or rolled back
    Verify(VerifyArgs),
    /// Write a receipt: one file that proves the events of a run
    Receipt(ReceiptArgs),
    /// Check a receipt with a public key; needs no ledger
    VerifyReceipt(VerifyReceiptArgs),
    /// Print the newest signed checkpoint, to keep on another machine
    Checkpoint(CheckpointArgs),
    /// Prove that one event is in the ledger
    Prove(ProveArgs),
    /// Prove that the ledger only grew from one size to another
    Consistency(ConsistencyArgs),
    /// Check a proof of `prove` or of `consistency`
    VerifyProof(VerifyProofArgs),
    /// Delete recorded bodies (contents); the ledger stays verifiable
    Redact(RedactArgs),
    /// Delete old bodies (contents); events are never deleted
    Prune(PruneArgs),
    /// Show the disk usage of the ledger
    Usage(UsageArgs),
    /// Show, rotate or export the signing key
    Key(KeyArgs),
    /// Settle intents whose result is unknown
    Settle(SettleArgs),
    /// Repair a damaged ledger; nothing is deleted
    Mend(MendArgs),
    /// Export events as JSON lines, OpenTelemetry traces or tiles
    Export(ExportArgs),
    /// Import an OpenTelemetry trace (OTLP as JSON)
    ImportTrace(ImportTraceArgs),
}

/// The option `--json` of commands with one result.
#[derive(Debug, Args)]
pub(crate) struct Json {
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

const LOG_EXAMPLES: &str = "Examples:
  belljar ledger log --run my-run
  belljar ledger log --kind request --since 2h
  belljar ledger log --follow --json";

#[derive(Debug, Args)]
#[command(after_help = LOG_EXAMPLES, after_long_help = kinds_help())]
pub(crate) struct LogArgs {
    /// Only this run: its id, id prefix or name
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Only events of this kind (request.decided) or family of kinds (request)
    #[arg(long, value_name = "KIND", value_parser = kinds(), hide_possible_values = true)]
    pub(crate) kind: Option<String>,
    /// Only events since this time: 2026-11-16, 2026-11-16T12:00:00Z, or an age such as 2h or 30d
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<When>,
    /// Only events before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<When>,
    /// Only the newest N events [default: all; 10 with --follow]
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// List the newest event first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Print new events until Ctrl-C is pressed
    #[arg(long, short, conflicts_with_all = ["reverse", "until"])]
    pub(crate) follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger show 17
  belljar ledger show my-run/3 --json")]
pub(crate) struct ShowArgs {
    /// Index of an event, or RUN/SEQUENCE
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger get 8cfac5c69ea9 -o body.bin")]
pub(crate) struct GetArgs {
    /// Hash of a body, or a prefix of at least 8 digits
    #[arg(value_name = "HASH")]
    pub(crate) hash: String,
    /// Write to this file [default: standard output; control characters are escaped on a terminal]
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger replay my-run
  belljar ledger replay my-run --speed 10
  belljar ledger replay my-run --step")]
pub(crate) struct ReplayArgs {
    /// Id, id prefix or name of a run
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Wait for the Enter key before each event
    #[arg(long, conflicts_with_all = ["json", "speed"])]
    pub(crate) step: bool,
    /// Replay N times as fast as the run [default: print all events at once]
    #[arg(long, value_name = "N", value_parser = speed)]
    pub(crate) speed: Option<f64>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 1 means that the ledger was changed, truncated or rolled back, or that a body is damaged.

Examples:
  belljar ledger verify --deep
  belljar ledger verify --checkpoint saved-checkpoint.txt --key saved-key.pub"
)]
pub(crate) struct VerifyArgs {
    /// Also check every recorded body
    #[arg(long)]
    pub(crate) deep: bool,
    /// Checkpoint from another machine that the ledger must contain; can be repeated
    #[arg(long = "checkpoint", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) checkpoints: Vec<PathBuf>,
    /// Public key to trust, or a file with it [default: the first key of this machine]
    #[arg(long, value_name = "KEY|FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger receipt my-run -o my-run.receipt")]
pub(crate) struct ReceiptArgs {
    /// Id, id prefix or name of a run
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Include the recorded bodies (contents)
    #[arg(long)]
    pub(crate) with_bodies: bool,
}

/// The trusted key of a verification, and the output format.
#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// Public key to trust, or a file with it [default: the key of this machine]
    #[arg(long, value_name = "KEY|FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 1 means that the receipt is invalid, or that its key is not trusted.

Examples:
  belljar ledger verify-receipt my-run.receipt
  belljar ledger verify-receipt my-run.receipt --key saved-key.pub"
)]
pub(crate) struct VerifyReceiptArgs {
    /// File with the receipt; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Accept a receipt of Belljar 0.1, which does not show whether its last events were cut off
    #[arg(long)]
    pub(crate) accept_format_1: bool,
    #[command(flatten)]
    pub(crate) trust: Trust,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger checkpoint -o checkpoint.txt")]
pub(crate) struct CheckpointArgs {
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// Output file and format of a proof.
#[derive(Debug, Args)]
pub(crate) struct ProofOutput {
    /// Write to this file instead of standard output
    #[arg(long = "output", short = 'o', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// Print JSON, the format of `verify-proof`; always used with -o
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger prove 17 -o proof.json")]
pub(crate) struct ProveArgs {
    /// Index of an event, or RUN/SEQUENCE
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) output: ProofOutput,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger consistency 100 200 -o proof.json
  belljar ledger consistency saved-checkpoint.txt 200")]
pub(crate) struct ConsistencyArgs {
    /// Smaller size, or a file with a checkpoint
    #[arg(value_name = "A")]
    pub(crate) old: String,
    /// Larger size, or a file with a checkpoint
    #[arg(value_name = "B")]
    pub(crate) new: String,
    #[command(flatten)]
    pub(crate) output: ProofOutput,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger verify-proof proof.json --key saved-key.pub")]
pub(crate) struct VerifyProofArgs {
    /// File with the proof; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) trust: Trust,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Runs of another template record the same content under another hash; redact that hash too.
`belljar ledger show` prints the hashes of an event.

Examples:
  belljar ledger redact 8cfac5c69ea9 --reason 'personal data of a customer'"
)]
pub(crate) struct RedactArgs {
    /// Hashes of bodies, or prefixes of at least 8 digits
    #[arg(value_name = "HASH", required = true)]
    pub(crate) hashes: Vec<String>,
    /// Reason, which is recorded and stays readable
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger prune --before 90d --dry-run")]
pub(crate) struct PruneArgs {
    /// Delete bodies from before this time: 2026-11-16, 2026-11-16T12:00:00Z, or an age such as 30d
    #[arg(long, value_name = "DATE")]
    pub(crate) before: When,
    /// Print what would be deleted, and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger usage")]
pub(crate) struct UsageArgs {
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger key show
  belljar ledger key export -o ledger.pub")]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    pub(crate) command: KeyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Show the public keys, oldest first; the last key signs
    #[command(after_help = "Examples:
  belljar ledger key show")]
    Show {
        #[command(flatten)]
        json: Json,
    },
    /// Replace the signing key by a new one, which the old key signs
    #[command(after_help = "Examples:
  belljar ledger key rotate")]
    Rotate {
        /// Do not ask for confirmation
        #[arg(long, short = 'y')]
        yes: bool,
        #[command(flatten)]
        json: Json,
    },
    /// Print the public keys, one per line, for `--key FILE`
    #[command(after_help = "Examples:
  belljar ledger key export -o ledger.pub")]
    Export {
        /// Write to this file instead of standard output
        #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger settle 17 --reason 'the files were copied'
  belljar ledger settle --run my-run --reason 'the host lost its power'
  belljar ledger settle --all --reason 'the host lost its power'")]
#[command(group(ArgGroup::new("intents").required(true).args(["ids", "run", "all"])))]
pub(crate) struct SettleArgs {
    /// Indexes of intents, or RUN/SEQUENCE
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Settle all intents of this run whose result is unknown
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Settle all intents that `belljar runs` lists as needing attention
    #[arg(long)]
    pub(crate) all: bool,
    /// Result as far as it is known, which is recorded
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(
    after_help = "If the events are intact but do not match the signed head, the ledger gets a new head. Otherwise the
ledger and its keys are renamed and a new ledger begins. Lost events cannot be restored. The ledger
records the repair, its time and the reason.

Examples:
  belljar ledger mend --reason 'disk was full'"
)]
pub(crate) struct MendArgs {
    /// Cause as far as it is known, which is recorded
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar ledger export --run my-run -o events.jsonl
  belljar ledger export --otel --run my-run -o trace.json
  belljar ledger export --tiles ./static-log")]
pub(crate) struct ExportArgs {
    /// Export OpenTelemetry traces (OTLP as JSON), one trace per run
    #[arg(long, group = "format")]
    pub(crate) otel: bool,
    /// Export one JSON object per event and line [the default]
    #[arg(long, group = "format")]
    pub(crate) jsonl: bool,
    /// Export a static log to this directory, for tools that read C2SP tlog-tiles
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, group = "format",
          conflicts_with_all = ["run", "output"])]
    pub(crate) tiles: Option<PathBuf>,
    /// Only this run: its id, id prefix or name
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A file can have at most 64 MiB and 100,000 spans. If any part of it is invalid, nothing is recorded.

Examples:
  belljar ledger import-trace trace.json --run my-run"
)]
pub(crate) struct ImportTraceArgs {
    /// File with OTLP as JSON, one object or one per line; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Add the spans to this run: its id, id prefix or name
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Record the attributes themselves, not only their hash
    #[arg(long)]
    pub(crate) bodies: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// Returns every kind of event and every family of kinds, with descriptions.
fn kinds() -> Vec<PossibleValue> {
    let mut all: Vec<PossibleValue> = Vec::new();
    let mut last = "";
    for (kind, about) in Event::KINDS {
        let family = kind.split('.').next().unwrap_or(kind);
        if family != last && !all.iter().any(|value| value.get_name() == family) {
            all.push(PossibleValue::new(family).help(format!("All kinds of the family {family}")));
        }
        last = family;
        all.push(PossibleValue::new(*kind).help(about.trim()));
    }
    all
}

/// Returns the end of the long help: examples and all kinds of events.
fn kinds_help() -> String {
    let mut text = format!("{LOG_EXAMPLES}\n\nKinds of events:\n");
    for (kind, about) in Event::KINDS {
        text.push_str(&format!("  {kind:<20} {}\n", about.trim()));
    }
    text
}

/// Checks that a reason is not empty and fits into an event.
fn reason(text: &str) -> Result<String, String> {
    const MAX_LENGTH: usize = 4096;
    if text.trim().is_empty() {
        return Err("the reason must not be empty".to_owned());
    }
    if text.len() > MAX_LENGTH {
        return Err(format!("the reason is longer than the limit of {MAX_LENGTH} bytes"));
    }
    Ok(text.to_owned())
}

/// Parses the factor of `--speed`.
fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(times) if times.is_finite() && times > 0.0 => Ok(times),
        _ => Err("expected a number above 0, such as 10 or 0.5".to_owned()),
    }
}
