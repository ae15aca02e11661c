//! What can be typed after `belljar ledger`.

use std::path::PathBuf;

use belljar_ledger::Event;
use clap::builder::PossibleValue;
use clap::{Args, Subcommand, ValueHint};

use crate::cli::when::When;

#[derive(Debug, Args)]
#[command(after_help = "Try:  belljar ledger log --limit 20
      belljar ledger show 17
      belljar ledger verify --deep
      belljar ledger receipt my-run -o my-run.receipt")]
pub(crate) struct LedgerArgs {
    #[command(subcommand)]
    pub(crate) command: LedgerCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// List what happened, oldest first
    Log(LogArgs),
    /// Show one event with its causes, effects and bodies
    Show(ShowArgs),
    /// Write out one body, after checking it
    Get(GetArgs),
    /// Show a run as it unfolded, step by step
    Replay(ReplayArgs),
    /// Check that nothing was changed, cut off or put back
    Verify(VerifyArgs),
    /// Write a record of one run that proves itself elsewhere
    Receipt(ReceiptArgs),
    /// Check a receipt, with nothing but a public key
    VerifyReceipt(VerifyReceiptArgs),
    /// Print the newest signed checkpoint; keep it on another machine
    Checkpoint(CheckpointArgs),
    /// Prove that one event is in the ledger
    Prove(ProveArgs),
    /// Prove that the ledger only grew from one size to another
    Consistency(ConsistencyArgs),
    /// Check a proof of `prove` or `consistency`
    VerifyProof(VerifyProofArgs),
    /// Drop bodies for good; the ledger still verifies
    Redact(RedactArgs),
    /// Drop old bodies; events are never dropped
    Prune(PruneArgs),
    /// Show how much disk the ledger uses
    Usage(UsageArgs),
    /// Show, exchange or export the key that signs
    Key(KeyArgs),
    /// Settle an intent of which nobody knows how it went
    Settle(SettleArgs),
    /// Go on with a ledger that was damaged; nothing is deleted
    Mend(MendArgs),
    /// Write the events for other tools: JSON lines, OpenTelemetry, tiles
    Export(ExportArgs),
    /// Bring in a trace of OpenTelemetry (OTLP as JSON)
    ImportTrace(ImportTraceArgs),
}

/// One JSON value instead of text for people.
#[derive(Debug, Args)]
pub(crate) struct Json {
    /// JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

const LOG_EXAMPLES: &str = "Try:  belljar ledger log --run my-run
      belljar ledger log --kind request --since 2h
      belljar ledger log --follow --json";

#[derive(Debug, Args)]
#[command(after_help = LOG_EXAMPLES, after_long_help = kinds_help())]
pub(crate) struct LogArgs {
    /// Only this run: its id, the beginning of it, or its name
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Only this kind, such as request.decided, or a family of kinds, such as request
    #[arg(long, value_name = "KIND", value_parser = kinds(), hide_possible_values = true)]
    pub(crate) kind: Option<String>,
    /// Not before this time: 2026-11-16, 2026-11-16T12:00:00Z, or an age such as 2h or 30d
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<When>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<When>,
    /// At most so many: the newest [default: all; 10 with --follow]
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Newest first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Go on with what is recorded from now on, until interrupted
    #[arg(long, short, conflicts_with_all = ["reverse", "until"])]
    pub(crate) follow: bool,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The index of an event, or RUN/SEQUENCE
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The hash of a body, or at least 8 digits of its beginning
    #[arg(value_name = "HASH")]
    pub(crate) hash: String,
    /// Write to this file; without it a terminal gets a safe rendering, and a pipe the bytes
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Try:  belljar ledger replay my-run
      belljar ledger replay my-run --speed 10
      belljar ledger replay my-run --step")]
pub(crate) struct ReplayArgs {
    /// Id (or its beginning) or name of a run
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Wait for the return key before each event
    #[arg(long, conflicts_with_all = ["json", "speed"])]
    pub(crate) step: bool,
    /// As fast as it was, times N; without this everything is printed at once
    #[arg(long, value_name = "N", value_parser = speed)]
    pub(crate) speed: Option<f64>,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 1 means that something was changed, cut off or put back, or that a body is damaged.

Try:  belljar ledger verify --deep
      belljar ledger verify --checkpoint kept-elsewhere.txt --key kept-elsewhere.pub"
)]
pub(crate) struct VerifyArgs {
    /// Check every body too
    #[arg(long)]
    pub(crate) deep: bool,
    /// A checkpoint that was kept elsewhere; may be given more than once
    #[arg(long = "checkpoint", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) checkpoints: Vec<PathBuf>,
    /// The key to trust, or a file with it [default: the first of this machine's]
    #[arg(long, value_name = "KEY|FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiptArgs {
    /// Id (or its beginning) or name of a run
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Disclose the bodies that were kept, too
    #[arg(long)]
    pub(crate) with_bodies: bool,
}

/// The key that must have signed what is verified, and the form of the result.
#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// The key to trust, or a file with it [default: this machine's own]
    #[arg(long, value_name = "KEY|FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 1 means that the receipt does not hold, or that nothing vouches for its key."
)]
pub(crate) struct VerifyReceiptArgs {
    /// A receipt, or - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) trust: Trust,
}

#[derive(Debug, Args)]
pub(crate) struct CheckpointArgs {
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// Where a proof goes, and in which form.
#[derive(Debug, Args)]
pub(crate) struct ProofOutput {
    /// Write to this file instead of standard output
    #[arg(long = "output", short = 'o', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// JSON, which `verify-proof` reads; with -o always so
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    /// The index of an event, or RUN/SEQUENCE
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) output: ProofOutput,
}

#[derive(Debug, Args)]
pub(crate) struct ConsistencyArgs {
    /// The smaller size, or a file with a checkpoint
    #[arg(value_name = "A")]
    pub(crate) old: String,
    /// The larger size, or a file with a checkpoint
    #[arg(value_name = "B")]
    pub(crate) new: String,
    #[command(flatten)]
    pub(crate) output: ProofOutput,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyProofArgs {
    /// A proof, or - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) trust: Trust,
}

#[derive(Debug, Args)]
#[command(
    after_help = "What runs under another template kept of the same content has another hash, and stays.

Try:  belljar ledger show 17
      belljar ledger redact 8cfac5c69ea9 --reason \"a customer's data\""
)]
pub(crate) struct RedactArgs {
    /// Hashes of bodies, or at least 8 digits of their beginning
    #[arg(value_name = "HASH", required = true)]
    pub(crate) hashes: Vec<String>,
    /// Why; this is recorded and stays readable
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Try:  belljar ledger prune --before 90d --dry-run")]
pub(crate) struct PruneArgs {
    /// Drop bodies of before: 2026-11-16, 2026-11-16T12:00:00Z, or an age such as 30d
    #[arg(long, value_name = "DATE")]
    pub(crate) before: When,
    /// Only say what would go
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    pub(crate) command: KeyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// The public keys, oldest first; the last one signs
    Show {
        #[command(flatten)]
        json: Json,
    },
    /// Make a new key; the old one vouches for it and is forgotten
    Rotate {
        /// Do not ask
        #[arg(long, short = 'y')]
        yes: bool,
        #[command(flatten)]
        json: Json,
    },
    /// The public keys alone, one a line, as `--key FILE` reads them
    Export {
        /// Write to this file instead of standard output
        #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SettleArgs {
    /// The index of an intent, or RUN/SEQUENCE
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// What was found out; this is recorded
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(
    after_help = "If the log is whole but shorter or newer than what vouches for it, it gets a new head. If not, ledger
and keys are set aside under another name and a new ledger begins. What was lost stays lost, and
the record says that, when, and why."
)]
pub(crate) struct MendArgs {
    /// What happened, as far as is known; this is recorded
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Try:  belljar ledger export --run my-run > events.jsonl
      belljar ledger export --otel --run my-run -o trace.json
      belljar ledger export --tiles ./static-log")]
pub(crate) struct ExportArgs {
    /// Traces of OpenTelemetry (OTLP as JSON): one trace per run
    #[arg(long, group = "format")]
    pub(crate) otel: bool,
    /// One JSON object per event and line [the default]
    #[arg(long, group = "format")]
    pub(crate) jsonl: bool,
    /// A static log in this directory, for tools that read C2SP tlog-tiles
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, group = "format",
          conflicts_with_all = ["run", "output"])]
    pub(crate) tiles: Option<PathBuf>,
    /// Only this run: its id, the beginning of it, or its name
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "At most 64 MiB and 100,000 spans. If anything in the file is wrong, nothing is recorded."
)]
pub(crate) struct ImportTraceArgs {
    /// OTLP as JSON, one object or one per line; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Make the spans part of this run: its id, the beginning of it, or its name
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Keep the attributes themselves, not only their hash
    #[arg(long)]
    pub(crate) bodies: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// Every kind of event and every family of kinds.
fn kinds() -> Vec<PossibleValue> {
    let mut all: Vec<PossibleValue> = Vec::new();
    let mut last = "";
    for (kind, about) in Event::KINDS {
        let family = kind.split('.').next().unwrap_or(kind);
        if family != last && !all.iter().any(|value| value.get_name() == family) {
            all.push(PossibleValue::new(family).help(format!("All of {family}")));
        }
        last = family;
        all.push(PossibleValue::new(*kind).help(about.trim()));
    }
    all
}

fn kinds_help() -> String {
    let mut text = format!("{LOG_EXAMPLES}\n\nKinds of events:\n");
    for (kind, about) in Event::KINDS {
        text.push_str(&format!("  {kind:<20} {}\n", about.trim()));
    }
    text
}

/// A reason that says something, and fits an event.
fn reason(text: &str) -> Result<String, String> {
    const LONGEST: usize = 4096;
    if text.trim().is_empty() {
        return Err("a reason has words".to_owned());
    }
    if text.len() > LONGEST {
        return Err(format!("longer than {LONGEST} bytes"));
    }
    Ok(text.to_owned())
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(times) if times.is_finite() && times > 0.0 => Ok(times),
        _ => Err("a number above 0, such as 10 or 0.5".to_owned()),
    }
}
