//! `belljar ledger key`: shows, rotates and exports the keys of the ledger, never a private key.

use belljar_model::display;
use serde_json::json;

use super::{LedgerHome, write_output};
use crate::cli::ledger::{KeyArgs, KeyCommand};
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};

/// Runs `belljar ledger key`.
pub(crate) fn run(args: &KeyArgs) -> Outcome {
    let home = LedgerHome::open()?;
    if !home.exists()? {
        return Err(invalid(super::NO_LEDGER));
    }
    match &args.command {
        KeyCommand::Show { json } => {
            let keys: Vec<String> = home.keys()?.iter().map(ToString::to_string).collect();
            if json.json {
                print::json(&json!({ "keys": keys, "signs": keys.last() }))
                    .kind(ErrorKind::Broken)?;
                return Ok(0);
            }
            let last = keys.len().saturating_sub(1);
            for (index, key) in keys.iter().enumerate() {
                let role = if index == last { "signs" } else { "former" };
                print::out(&format!("{role:<7} {}\n", display::safe_line(key)))
                    .kind(ErrorKind::Broken)?;
            }
        }
        KeyCommand::Rotate { yes, json } => {
            let question =
                "replace the signing key and delete the old private key? Save a checkpoint first";
            if !yes && !print::confirm(question).kind(ErrorKind::Broken)? {
                return Err(invalid(
                    "the key was not rotated, because it was not confirmed; `--yes` skips the question",
                ));
            }
            let new = home.writer()?.rotate_key().kind(ErrorKind::Broken)?;
            if json.json {
                print::json(&json!({ "key": new.to_string() })).kind(ErrorKind::Broken)?;
            } else {
                print::out(&format!("{new}\n")).kind(ErrorKind::Broken)?;
                print::note(
                    "the old key has signed the new key; whoever trusts the old key needs to do nothing",
                );
            }
        }
        KeyCommand::Export { output } => {
            let keys = home.keys()?;
            let text: String = keys.iter().map(|key| format!("{key}\n")).collect();
            write_output(output.as_deref(), &text)?;
        }
    }
    Ok(0)
}
