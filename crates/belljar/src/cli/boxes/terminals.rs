//! Looking into a box that is up: its screen, its log, more programs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use belljar_model::EnvVar;
use belljar_model::boxes::BoxName;
use clap::{Args, ValueHint};

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The name of a box
    #[arg(value_name = "NAME")]
    pub(crate) name: BoxName,
    /// Only look: what is typed does not reach the program
    #[arg(long)]
    pub(crate) read_only: bool,
    /// The keys that leave the box running: `ctrl-x`, single letters, several with commas between, or `none`
    #[arg(long, value_name = "KEYS", default_value = "ctrl-]")]
    pub(crate) detach_keys: DetachKeys,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The name of a box
    #[arg(value_name = "NAME")]
    pub(crate) name: BoxName,
    /// Go on with what it writes, until it ends
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only the last lines
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// The name of a box
    #[arg(value_name = "NAME")]
    pub(crate) name: BoxName,
    /// Start there, in the box [default: where the box's own program started]
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,
    /// Set a variable, or pass on one of the caller's
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<EnvVar>,
    /// Give the program a terminal, even if there is none here
    #[arg(long, conflicts_with = "no_tty")]
    pub(crate) tty: bool,
    /// Give the program pipes, even at a terminal
    #[arg(long)]
    pub(crate) no_tty: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// The bytes that a terminal sends for the keys that detach; none: nothing does.
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
            "keys are `ctrl-` and a letter or one of `@[\\]^_`, or single characters, at most eight with commas between".to_owned()
        })
    }
}

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
    fn keys_are_what_a_terminal_sends_for_them() {
        check("ctrl-]", Some(b"\x1d"));
        check("ctrl-p,ctrl-q", Some(b"\x10\x11"));
        check("ctrl-A,d", Some(b"\x01d"));
        check("none", Some(b""));
        for wrong in ["", "ctrl-", "ctrl-1", "escape", "ctrl-a,", "é", "a,b,c,d,e,f,g,h,i"] {
            check(wrong, None);
        }
    }
}
