//! `belljar ledger key`: the public keys of the ledger. The secret one is never shown.

use belljar_model::display;
use serde_json::json;

use super::{Home, write_output};
use crate::cli::ledger::{KeyArgs, KeyCommand};
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};

pub(crate) fn run(args: &KeyArgs) -> Outcome {
    let home = Home::open()?;
    if !home.exists() {
        return Err(invalid(super::NONE_YET));
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
            for (place, key) in keys.iter().enumerate() {
                let role = if place == last { "signs" } else { "former" };
                print::out(&format!("{role:<7} {}\n", display::safe_line(key)))
                    .kind(ErrorKind::Broken)?;
            }
        }
        KeyCommand::Rotate { yes, json } => {
            let question = "make a new key and forget the old one? Keep a checkpoint first";
            if !yes && !print::confirm(question).kind(ErrorKind::Broken)? {
                return Err(invalid("nothing was done; `--yes` answers the question"));
            }
            let new = home.writer()?.rotate_key().kind(ErrorKind::Broken)?;
            if json.json {
                print::json(&json!({ "key": new.to_string() })).kind(ErrorKind::Broken)?;
            } else {
                print::out(&format!("{new}\n")).kind(ErrorKind::Broken)?;
                print::note("the old key vouches for this one; who trusts it need not do anything");
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
