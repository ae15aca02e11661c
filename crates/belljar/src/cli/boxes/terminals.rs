//! Arguments of the commands that show and use a running box: `attach`, `exec`, `shell` and `logs`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use belljar_model::EnvVar;
use belljar_model::boxes::BoxName;
use clap::{Args, ValueHint};

use crate::cli::runs::TaskTarget;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar attach dev
  belljar attach dev --read-only")]
pub(crate) struct AttachArgs {
    /// Name of the box
    #[arg(value_name = "NAME")]
    pub(crate) name: BoxName,
    /// Show the screen only; send no keys to the program
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Keys that detach and leave the program running: `ctrl-x`, single letters, a list with commas, or `none`
    #[arg(long, value_name = "KEYS", default_value = "ctrl-]")]
    pub(crate) detach_keys: DetachKeys,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar logs dev --tail 100
  belljar logs dev --follow
  belljar logs dev --raw
  belljar logs fix-login/fix[0]")]
pub(crate) struct LogsArgs {
    /// Name of the box, or a task of the run of a plan
    #[arg(value_name = "NAME|RUN/TASK")]
    pub(crate) of: BoxTarget,
    /// Print new output until the box stops
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print only this many lines from the end
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<usize>,
    /// Print the recorded bytes with all control sequences; refused at a terminal
    #[arg(long)]
    pub(crate) raw: bool,
}

/// A named box, or the box of a task of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BoxTarget {
    Box(BoxName),
    Task(TaskTarget),
}

impl FromStr for BoxTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The name of a box contains no slash.
        if text.contains('/') {
            return text.parse().map(Self::Task);
        }
        text.parse().map(Self::Box).map_err(|error: <BoxName as FromStr>::Err| error.to_string())
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar exec dev -- ls -l
  belljar exec dev --workdir /workspace/web -- npm test
  belljar exec fix-login/fix[0] -- git log --oneline")]
pub(crate) struct ExecArgs {
    /// Name of the box, or a running task with an agent
    #[arg(value_name = "NAME|RUN/TASK")]
    pub(crate) name: BoxTarget,
    /// Working directory in the box [default: the working directory of the box]
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,
    /// Set an environment variable, or pass on one of yours by name
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<EnvVar>,
    /// Give the program a terminal [default: if input and output are a terminal]
    #[arg(long, conflicts_with = "no_tty")]
    pub(crate) tty: bool,
    /// Give the program pipes instead of a terminal
    #[arg(long)]
    pub(crate) no_tty: bool,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "The shell is bash, or sh if the box has no bash.

Examples:
  belljar shell dev
  belljar shell fix-login/fix[0]")]
pub(crate) struct ShellArgs {
    /// Name of the box, or a running task with an agent
    #[arg(value_name = "NAME|RUN/TASK")]
    pub(crate) name: BoxTarget,
    /// Working directory in the box [default: the working directory of the box]
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,
    /// Set an environment variable, or pass on one of yours by name
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<EnvVar>,
}

/// The bytes of the key sequence that detaches a terminal from a box; empty if there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DetachKeys(pub(crate) Vec<u8>);

impl FromStr for DetachKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let keys = text.split(',').map(key).collect::<Option<Vec<u8>>>();
        keys.filter(|keys| keys.len() <= 8).map(Self).ok_or_else(|| {
            "expected at most eight keys with commas between, each `ctrl-` and a letter or one of `@[\\]^_`, or a single character".to_owned()
        })
    }
}

/// Returns the byte that a terminal sends for a key, or `None` for an invalid key.
fn key(name: &str) -> Option<u8> {
    let (character, control) = match name.strip_prefix("ctrl-") {
        Some(rest) => (rest, true),
        None => (name, false),
    };
    match (character.as_bytes(), control) {
        ([letter @ (b'a'..=b'z' | b'A'..=b'Z' | b'@' | b'['..=b'_')], true) => {
            Some(letter.to_ascii_uppercase() & 0x1f)
        }
        ([byte @ b'!'..=b'~'], false) => Some(*byte),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<&[u8]>) {
        let keys = text.parse::<DetachKeys>().ok().map(|keys| keys.0);
        assert_eq!(keys.as_deref(), expect, "{text}");
    }

    #[test]
    fn box_target_with_a_slash_is_a_task_and_any_other_is_a_box() {
        let target = |text: &str| text.parse::<BoxTarget>();
        assert!(matches!(target("fix-login/fix[0]"), Ok(BoxTarget::Task(_))));
        assert!(matches!(target("dev"), Ok(BoxTarget::Box(_))));
        assert!(target("a/..").is_err());
        assert!(target("").is_err());
    }

    #[test]
    fn detach_keys_are_parsed_to_the_bytes_that_a_terminal_sends() {
        check("ctrl-]", Some(b"\x1d"));
        check("ctrl-p,ctrl-q", Some(b"\x10\x11"));
        check("ctrl-A,d", Some(b"\x01d"));
        check("none", Some(b""));
        for wrong in ["", "ctrl-", "ctrl-1", "escape", "ctrl-a,", "é", "a,b,c,d,e,f,g,h,i"] {
            check(wrong, None);
        }
    }
}
