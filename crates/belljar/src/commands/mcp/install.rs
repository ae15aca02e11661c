//! `belljar mcp install`: adds Belljar to the settings of an MCP client.
//!
//! All other bytes of the settings file stay unchanged. A file that cannot be edited safely, such as
//! JSON with comments, is not changed; the entry is printed, and the user can add it. A token is never
//! written: clients read it from `BELLJAR_TOKEN`.

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
use client::{ClientSettings, ServerEntry, SettingsFile};

/// The maximum size of a settings file; Claude Code stores much other data in the same file.
const MAX_BYTES: u64 = 64 << 20;

/// Runs `belljar mcp install`.
pub(crate) fn run(cli: &Cli, args: &InstallArgs) -> Outcome {
    let entry = match &args.http {
        Some(url) => ServerEntry::Http(check_url(url)?),
        None => ServerEntry::Command(command(cli, args)?),
    };
    let settings = ClientSettings::new(args.client, &entry);
    let settings_file = SettingsFile::find(args.client)?;
    if args.print {
        print::note(&format!("add this entry to {}:", settings_file.file.display()));
        print::out(&settings.new_file()).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    install(&settings, &settings_file, args.yes)
}

/// Adds the entry to a settings file after a preview and a question.
fn install(settings: &ClientSettings, settings_file: &SettingsFile, yes: bool) -> Outcome {
    let file = &settings_file.file;
    let failure = || format!("cannot read {}", file.display());
    let old = durable::read(file, MAX_BYTES, settings_file.links)
        .with_context(failure)
        .kind(ErrorKind::Broken)?;
    let old = old.unwrap_or_default();
    let new = match settings.insert_into(&old) {
        Ok(new) => new,
        Err(why) => {
            print::out(&settings.new_file()).kind(ErrorKind::Broken)?;
            return Err(invalid(format!(
                "cannot edit {}: {why}; nothing was written; add the entry that is printed above yourself",
                file.display()
            )));
        }
    };
    if new == old {
        print::note(&format!("{} already has this entry", file.display()));
        return Ok(0);
    }
    print::out(&preview(file, &old, &new)).kind(ErrorKind::Broken)?;
    if !yes && !print::confirm("write these changes?").kind(ErrorKind::Broken)? {
        return Err(invalid(
            "nothing was written, because it was not confirmed; `--yes` skips the question",
        ));
    }
    write(settings_file, &old, &new)?;
    print::note(&format!(
        "the settings were written; restart {} to use them",
        settings.client_name()
    ));
    Ok(0)
}

/// Writes the new settings; saves the old settings as a backup the first time.
fn write(settings_file: &SettingsFile, old: &str, new: &str) -> Result<(), EngineError> {
    let file = &settings_file.file;
    if !old.is_empty() {
        let backup = backup_path(file);
        let before = durable::read(&backup, MAX_BYTES, Links::Refuse);
        let before = before
            .with_context(|| format!("cannot read the backup {}", backup.display()))
            .kind(ErrorKind::Broken)?;
        // An existing backup is kept: it has the settings from before the first install.
        if before.is_none() {
            let kept = durable::replace(&backup, "", old, Links::Refuse);
            kept.with_context(|| format!("cannot write the backup {}", backup.display()))
                .kind(ErrorKind::Broken)?;
            print::note(&format!("the old settings were saved as {}", backup.display()));
        }
    }
    let written = durable::replace(file, old, new, settings_file.links);
    written.with_context(|| format!("cannot write {}", file.display())).kind(ErrorKind::Broken)
}

/// Returns the path of the backup of a settings file.
fn backup_path(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".before-belljar");
    file.with_file_name(name)
}

/// The command line and environment variables with which a client starts Belljar.
#[derive(Debug)]
struct ServerCommand {
    words: Vec<String>,
    env: Vec<(String, String)>,
}

/// Returns the command with which a client starts this executable.
fn command(cli: &Cli, args: &InstallArgs) -> Result<ServerCommand, EngineError> {
    let executable = std::env::current_exe()
        .context("cannot find the executable of belljar")
        .kind(ErrorKind::Broken)?;
    let mut words = vec![utf8("the path of the executable", executable)?];
    if let Some(config) = &cli.config {
        let config = std::path::absolute(config)
            .context("--config: cannot make the path absolute")
            .kind(ErrorKind::Broken)?;
        words.extend(["--config".to_owned(), utf8("--config", config)?]);
    }
    words.push("mcp".to_owned());
    for arg in &args.args {
        words.push(utf8("an argument", arg.clone())?);
    }
    let mut env = Vec::new();
    for name in ["BELLJAR_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            env.push((name.to_owned(), utf8(name, value)?));
        }
    }
    Ok(ServerCommand { words, env })
}

/// Converts a value to a string; it is an error if the value is not UTF-8.
fn utf8(what: &str, value: impl Into<std::ffi::OsString>) -> Result<String, EngineError> {
    let not_utf8 =
        |_| invalid(format!("{what} is not UTF-8, so it cannot be written to the settings"));
    value.into().into_string().map_err(not_utf8)
}

/// Checks that the value of `--http` is an HTTP URL.
fn check_url(url: &str) -> Result<String, EngineError> {
    let is_http = url.starts_with("http://") || url.starts_with("https://");
    if !is_http || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(invalid(format!(
            "--http: {url} is not a valid URL; use a URL such as http://127.0.0.1:7070/mcp"
        )));
    }
    Ok(url.to_owned())
}

/// Returns the changed lines of a file as a diff with a few lines of context.
fn preview(file: &Path, old: &str, new: &str) -> String {
    const CONTEXT_LINES: usize = 3;
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = |(left, right): &(&&str, &&str)| left == right;
    let head = old.iter().zip(&new).take_while(same).count();
    let max_tail = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count().min(max_tail);
    let mut out = format!("{}\n", display::safe(file.as_os_str().as_encoded_bytes()));
    let mut push = |sign: char, lines: &[&str]| {
        for line in lines {
            out.push_str(&format!("{sign} {}\n", display::safe_line(line)));
        }
    };
    push(' ', new.get(head.saturating_sub(CONTEXT_LINES)..head).unwrap_or_default());
    push('-', old.get(head..old.len() - tail).unwrap_or_default());
    push('+', new.get(head..new.len() - tail).unwrap_or_default());
    let rest = new.len() - tail;
    push(' ', new.get(rest..(rest + CONTEXT_LINES).min(new.len())).unwrap_or_default());
    out
}
