//! `belljar mcp install`: writes Belljar into the settings of an MCP client.
//!
//! Everything else in the file stays as it is, byte for byte; what cannot be read as what the client
//! writes (JSON with comments, say) is not touched, and the entry is printed to be put in by hand. A
//! token is never written: clients take it from `BELLJAR_TOKEN`.

mod client;
mod json;
mod toml;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::display;

use crate::cli::Cli;
use crate::cli::mcp::InstallArgs;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::store::durable::{self, Links};
use client::{Entry, Place, Settings};

/// Claude Code keeps much beside its settings in the same file.
const MAX_BYTES: u64 = 64 << 20;

pub(crate) fn run(cli: &Cli, args: &InstallArgs) -> Outcome {
    let entry = match &args.http {
        Some(url) => Entry::Http(checked(url)?),
        None => Entry::Command(command(cli, args)?),
    };
    let settings = Settings::of(args.client, &entry);
    let place = Place::of(args.client)?;
    if args.print {
        print::note(&format!("for {}", place.file.display()));
        print::out(&settings.whole()).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    install(&settings, &place, args.yes)
}

fn install(settings: &Settings, place: &Place, yes: bool) -> Outcome {
    let file = &place.file;
    let doing = || format!("read {}", file.display());
    let old =
        durable::read(file, MAX_BYTES, place.links).with_context(doing).kind(ErrorKind::Broken)?;
    let old = old.unwrap_or_default();
    let new = match settings.within(&old) {
        Ok(new) => new,
        Err(why) => {
            print::out(&settings.whole()).kind(ErrorKind::Broken)?;
            return Err(invalid(format!(
                "{}: {why}; nothing was written. Put in what is printed above by hand",
                file.display()
            )));
        }
    };
    if new == old {
        print::note(&format!("{} has it already", file.display()));
        return Ok(0);
    }
    print::out(&shown(file, &old, &new)).kind(ErrorKind::Broken)?;
    if !yes && !print::confirm("write this?").kind(ErrorKind::Broken)? {
        return Err(invalid("nothing was written; `--yes` answers the question"));
    }
    write(place, &old, &new)?;
    print::note(&format!("written; start {} anew to use it", settings.client_name()));
    Ok(0)
}

fn write(place: &Place, old: &str, new: &str) -> Result<(), EngineError> {
    let file = &place.file;
    if !old.is_empty() {
        let backup = beside(file);
        let before = durable::read(&backup, MAX_BYTES, Links::Refuse);
        let before =
            before.with_context(|| format!("read {}", backup.display())).kind(ErrorKind::Broken)?;
        // The first one is what the person had before we came.
        if before.is_none() {
            let kept = durable::replace(&backup, "", old, Links::Refuse);
            kept.with_context(|| format!("keep {}", backup.display())).kind(ErrorKind::Broken)?;
            print::note(&format!("kept what was there as {}", backup.display()));
        }
    }
    let written = durable::replace(file, old, new, place.links);
    written.with_context(|| format!("write {}", file.display())).kind(ErrorKind::Broken)
}

/// Where the settings as they were before are kept.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".before-belljar");
    file.with_file_name(name)
}

/// What a client starts: words, and variables that the program needs to find its own files.
#[derive(Debug)]
struct Command {
    words: Vec<String>,
    env: Vec<(String, String)>,
}

fn command(cli: &Cli, args: &InstallArgs) -> Result<Command, EngineError> {
    let own = std::env::current_exe().context("find our own program").kind(ErrorKind::Broken)?;
    let mut words = vec![text("our own path", own)?];
    if let Some(config) = &cli.config {
        let config = std::path::absolute(config).context("--config").kind(ErrorKind::Broken)?;
        words.extend(["--config".to_owned(), text("--config", config)?]);
    }
    words.push("mcp".to_owned());
    for arg in &args.args {
        words.push(text("an argument", arg.clone())?);
    }
    let mut env = Vec::new();
    for name in ["BELLJAR_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            env.push((name.to_owned(), text(name, value)?));
        }
    }
    Ok(Command { words, env })
}

fn text(what: &str, value: impl Into<std::ffi::OsString>) -> Result<String, EngineError> {
    let told = |_| invalid(format!("{what} is not UTF-8, which no settings can hold"));
    value.into().into_string().map_err(told)
}

fn checked(url: &str) -> Result<String, EngineError> {
    let is_http = url.starts_with("http://") || url.starts_with("https://");
    if !is_http || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(invalid(format!("--http {url}: not a URL such as http://127.0.0.1:7070/mcp")));
    }
    Ok(url.to_owned())
}

/// The lines that change, with a few around them.
fn shown(file: &Path, old: &str, new: &str) -> String {
    const AROUND: usize = 3;
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = |(left, right): &(&&str, &&str)| left == right;
    let head = old.iter().zip(&new).take_while(same).count();
    let most = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count().min(most);
    let mut out = format!("{}\n", display::safe(file.as_os_str().as_encoded_bytes()));
    let mut push = |sign: char, lines: &[&str]| {
        for line in lines {
            out.push_str(&format!("{sign} {}\n", display::safe_line(line)));
        }
    };
    push(' ', new.get(head.saturating_sub(AROUND)..head).unwrap_or_default());
    push('-', old.get(head..old.len() - tail).unwrap_or_default());
    push('+', new.get(head..new.len() - tail).unwrap_or_default());
    let rest = new.len() - tail;
    push(' ', new.get(rest..(rest + AROUND).min(new.len())).unwrap_or_default());
    out
}
