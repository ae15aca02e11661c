//! `belljar up`: makes boxes that stay, and starts them.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::Identity;
use belljar_model::boxes::{BoxName, BoxRecord, Ground};

use crate::boxes::{self, NamedBox};
use crate::cli::Cli;
use crate::cli::boxes::{UpArgs, UpOptions};
use crate::commands::run::{choose_workspace, now};
use crate::failure::{Code as _, FAILED, Failure, NO_BOX, Outcome, usage};
use crate::keeper::{self, setup::Setup};
use crate::print;
use crate::repo::{self, Cloned, Source, Wish};
use crate::state::State;

pub(crate) fn run(cli: &Cli, args: &UpArgs) -> Outcome {
    let state = State::open()?;
    let command = args.command.iter().map(|word| text("CMD", word)).collect::<Result<_, _>>()?;
    let said = Said { options: typed()?, command, config: cli.config.clone() };
    let ground = ground(&args.options, &state)?;
    let source = args.options.repo.as_deref().map(|dir| repo::look(&state, dir)).transpose()?;
    let mut made = Vec::new();
    for name in &args.names {
        made.push(make(&state, name, &said, &ground, (&args.options, source.as_ref()))?);
    }
    start_all(&made)
}

/// Starts boxes side by side; those that cannot be are said, and the others go on.
pub(crate) fn start_all(boxes: &[NamedBox]) -> Outcome {
    let mut worst = 0;
    let mut starting = Vec::new();
    for one in boxes {
        let begun = one.turn().and_then(|turn| Ok((turn, keeper::start(one)?)));
        starting.push((one, begun));
    }
    for (one, begun) in starting {
        let name = one.name();
        match begun.and_then(|(turn, starting)| starting.finish().map(|()| drop(turn))) {
            Ok(()) => print::note(&format!("box {name} is up")),
            Err(Failure { code, error }) => {
                print::error(&error);
                worst = worst.max(code);
            }
        }
    }
    Ok(worst)
}

/// What was typed, for every box alike.
struct Said {
    options: Vec<String>,
    command: Vec<String>,
    config: Option<PathBuf>,
}

/// Makes one box; what it cannot be started with is found before there is anything to keep.
fn make(
    state: &State,
    name: &BoxName,
    said: &Said,
    ground: &Ground,
    (options, source): (&UpOptions, Option<&Source>),
) -> Result<NamedBox, Failure> {
    let typed_in = std::env::current_dir().context("find the current directory").code(FAILED)?;
    let absolute = |path: &PathBuf| std::path::absolute(path).context("--config").code(FAILED);
    let record = BoxRecord {
        name: name.clone(),
        created: u64::try_from(now().as_millis()).unwrap_or(u64::MAX),
        options: said.options.clone(),
        command: said.command.clone(),
        typed_in,
        config: said.config.as_ref().map(absolute).transpose()?,
        ground: ground.clone(),
        network: None,
    };
    let trial = NamedBox { dir: boxes::place(state).join(name.as_str()), record };
    let Setup { home, .. } = Setup::of(&trial, state)?;
    let path = source.map_or(ground.path(), |source| Some(source.path()));
    let owner = path.map(owner).transpose()?;
    boxes::create(state, trial.record, owner, |dir, record| {
        boxes::furnish(&dir.join("home"), &home, owner).code(NO_BOX)?;
        let Some(source) = source else { return Ok(()) };
        record.ground = clone(source, options, name, (&dir.join("repo"), owner))?;
        Ok(())
    })
}

/// Makes the private clone of a box.
pub(crate) fn clone(
    source: &Source,
    options: &UpOptions,
    name: &BoxName,
    (into, owner): (&Path, Option<(u32, u32)>),
) -> Result<Ground, Failure> {
    let identity = match &options.git_identity {
        Some(identity) => identity.clone(),
        None => source.identity().map_or_else(|| nobody(name), Ok)?,
    };
    let branch = options.branch.as_deref();
    let wish = Wish { branch, uncommitted: options.uncommitted, identity: &identity, name };
    let Cloned { at, remarks } = repo::clone(source, &wish, into, owner)?;
    remarks.iter().for_each(|remark| print::note(&format!("box {name}: {remark}")));
    Ok(Ground::Repo(Box::new(at)))
}

/// Who commits where git knows nobody.
fn nobody(name: &BoxName) -> Result<Identity, Failure> {
    Identity::new(&format!("box {name}"), &format!("{name}@belljar.invalid")).code(FAILED)
}

fn owner(path: &Path) -> Result<(u32, u32), Failure> {
    let meta = path.metadata().context("look at the workspace").code(FAILED)?;
    Ok((meta.uid(), meta.gid()))
}

/// What the box is to work on.
fn ground(options: &UpOptions, state: &State) -> Result<Ground, Failure> {
    if options.no_workspace || options.repo.is_some() {
        return Ok(Ground::Nothing);
    }
    let path = choose_workspace(options.workspace.as_deref(), state)?.path;
    Ok(Ground::Directory { path })
}

/// The words between `up` and `--`, as they were typed.
fn typed() -> Result<Vec<String>, Failure> {
    let mut words = std::env::args_os().skip(1);
    while let Some(word) = words.next() {
        if word == "--config" {
            words.next();
        } else if word == "up" {
            break;
        }
    }
    words.take_while(|word| word != "--").map(|word| text("an option", &word)).collect()
}

fn text(what: &str, word: &OsString) -> Result<String, Failure> {
    let word = word.to_str().map(str::to_owned);
    word.ok_or_else(|| usage(format!("{what} is not UTF-8, and could not be kept")))
}
