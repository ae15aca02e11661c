//! `belljar up`: makes boxes that stay, and starts them.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_model::Identity;
use belljar_model::boxes::{BoxName, BoxRecord, Ground};

use crate::cli::Cli;
use crate::cli::boxes::{UpArgs, UpOptions};
use crate::exit::{self, Outcome};
use crate::print;
use crate::scope;
use crate::scope::host;
use crate::spec::{TypedIn, box_spec};
use belljar_engine::boxes::{self, NamedBox};
use belljar_engine::clones::{self, Cloned, Source, Wish};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::keeper::{self, setup::Setup};
use belljar_engine::policy::choose_workspace;
use belljar_engine::scope::Scoped;
use belljar_model::spec::{BoxSpec, WorkspaceSpec};

pub(crate) fn run(cli: &Cli, args: &UpArgs) -> Outcome {
    let state = scope::open(None)?;
    let here = scope::here()?;
    let home = host().user_home();
    let typed_in =
        TypedIn { directory: &here, home: home.as_deref(), config: cli.config.as_deref() };
    let spec = box_spec(&args.options, &args.command, typed_in).kind(ErrorKind::Invalid)?;
    let ground = ground(&args.options, &state, &here)?;
    let source = args.options.repo.as_deref().map(|dir| clones::look(&state, dir)).transpose()?;
    let mut made = Vec::new();
    for name in &args.names {
        made.push(make(&state, name, (&spec, &here), &ground, source.as_ref())?);
    }
    start_all(&state, &made)
}

/// Starts boxes side by side; those that cannot be are said, and the others go on.
pub(crate) fn start_all(state: &Scoped, boxes: &[NamedBox]) -> Outcome {
    let mut worst = 0;
    let mut starting = Vec::new();
    for one in boxes {
        let begun = one.turn().and_then(|turn| Ok((turn, keeper::start(state, one)?)));
        starting.push((one, begun));
    }
    for (one, begun) in starting {
        let name = one.name();
        match begun.and_then(|(turn, starting)| starting.finish(state).map(|()| drop(turn))) {
            Ok(()) => print::note(&format!("box {name} is up")),
            Err(error) => {
                print::error(&error);
                worst = worst.max(exit::code(error.kind()));
            }
        }
    }
    Ok(worst)
}

/// Makes one box; what it cannot be started with is found before there is anything to keep.
fn make(
    state: &Scoped,
    name: &BoxName,
    (spec, here): (&BoxSpec, &Path),
    ground: &Ground,
    source: Option<&Source>,
) -> Result<NamedBox, EngineError> {
    let record = BoxRecord {
        name: name.clone(),
        created: state.clock().millis(),
        spec: spec.clone(),
        typed_in: here.to_owned(),
        ground: ground.clone(),
    };
    let trial = NamedBox { dir: boxes::place(state).join(name.as_str()), record };
    let Setup { home, .. } = Setup::of(&trial, state)?;
    let path = source.map_or(ground.path(), |source| Some(source.path()));
    let owner = path.map(owner).transpose()?;
    boxes::create(state, trial.record, owner, |dir, record| {
        boxes::furnish(&dir.join("home"), &home, owner).kind(ErrorKind::CannotStart)?;
        let Some(source) = source else { return Ok(()) };
        record.ground = clone(source, spec, name, (&dir.join("repo"), owner))?;
        Ok(())
    })
}

/// Makes the private clone of a box.
pub(crate) fn clone(
    source: &Source,
    spec: &BoxSpec,
    name: &BoxName,
    (into, owner): (&Path, Option<(u32, u32)>),
) -> Result<Ground, EngineError> {
    let identity = match &spec.git_identity {
        Some(identity) => identity.clone(),
        None => source.identity().map_or_else(|| nobody(name), Ok)?,
    };
    let (branch, uncommitted) = match &spec.workspace {
        WorkspaceSpec::Clone { branch, uncommitted, .. } => (branch.as_deref(), *uncommitted),
        WorkspaceSpec::None | WorkspaceSpec::Directory(_) => (None, false),
    };
    let wish = Wish { branch, uncommitted, identity: &identity, name };
    let Cloned { at, remarks } = clones::clone(source, &wish, into, owner)?;
    remarks.iter().for_each(|remark| print::note(&format!("box {name}: {remark}")));
    Ok(Ground::Repo(Box::new(at)))
}

/// Who commits where git knows nobody.
fn nobody(name: &BoxName) -> Result<Identity, EngineError> {
    Identity::new(&format!("box {name}"), &format!("{name}@belljar.invalid"))
        .kind(ErrorKind::Broken)
}

fn owner(path: &Path) -> Result<(u32, u32), EngineError> {
    let meta = path.metadata().context("look at the workspace").kind(ErrorKind::Broken)?;
    Ok((meta.uid(), meta.gid()))
}

/// What the box is to work on.
fn ground(options: &UpOptions, state: &Scoped, here: &Path) -> Result<Ground, EngineError> {
    if options.no_workspace || options.repo.is_some() {
        return Ok(Ground::Nothing);
    }
    let path = choose_workspace(state, here, options.workspace.as_deref())?.path;
    Ok(Ground::Directory { path })
}
