//! Creates named boxes from a spec.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_model::boxes::{BoxName, BoxRecord, BoxWorkspace};
use belljar_model::spec::{BoxSpec, WorkspaceSpec};
use belljar_model::{Identity, RepoAt};

use crate::box_store::{self, NamedBox};
use crate::clones::{self, CloneSpec, Cloned, Source};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::notice::Notice;
use crate::policy;
use crate::scope::Scoped;
use crate::supervisor::setup::Setup;

/// Creates one named box per name. Relative paths of templates are relative to `current_dir`.
///
/// Options that a box could not be started with are refused before anything is created.
pub fn create(
    state: &Scoped,
    names: &[BoxName],
    spec: &BoxSpec,
    current_dir: &Path,
) -> Result<Vec<NamedBox>, EngineError> {
    spec.check().kind(ErrorKind::Invalid)?;
    let (ground, source) = match &spec.workspace {
        WorkspaceSpec::None => (BoxWorkspace::Nothing, None),
        WorkspaceSpec::Directory(path) => {
            let path = policy::open_workspace(state, path)?.path;
            (BoxWorkspace::Directory { path }, None)
        }
        WorkspaceSpec::Clone { repo, .. } => {
            (BoxWorkspace::Nothing, Some(clones::find_source(state, repo)?))
        }
    };
    let create =
        |name: &BoxName| create_one(state, name, (spec, current_dir), &ground, source.as_ref());
    names.iter().map(create).collect()
}

fn create_one(
    state: &Scoped,
    name: &BoxName,
    (spec, current_dir): (&BoxSpec, &Path),
    ground: &BoxWorkspace,
    source: Option<&Source>,
) -> Result<NamedBox, EngineError> {
    let record = BoxRecord {
        name: name.clone(),
        created: state.clock().millis(),
        spec: spec.clone(),
        typed_in: current_dir.to_owned(),
        ground: ground.clone(),
        maker: Some(state.caller().principal.clone()),
    };
    let trial = NamedBox { dir: box_store::boxes_dir(state).join(name.as_str()), record };
    let Setup { home, .. } = Setup::of(&trial, state)?;
    let path = source.map_or(ground.path(), |source| Some(source.path()));
    let owner = path.map(owner).transpose()?;
    box_store::create(state, trial.record, owner, |dir, record| {
        box_store::write_home_files(&dir.join("home"), &home, owner)
            .kind(ErrorKind::CannotStart)?;
        let Some(source) = source else { return Ok(()) };
        record.ground = clone(state, source, spec, name, (&dir.join("repo"), owner))?;
        Ok(())
    })
}

/// Creates the private clone of a box.
fn clone(
    state: &Scoped,
    source: &Source,
    spec: &BoxSpec,
    name: &BoxName,
    (into, owner): (&Path, Option<(u32, u32)>),
) -> Result<BoxWorkspace, EngineError> {
    let identity = match &spec.git_identity {
        Some(identity) => identity.clone(),
        None => source.identity().map_or_else(|| default_identity(name), Ok)?,
    };
    let (branch, uncommitted) = match &spec.workspace {
        WorkspaceSpec::Clone { branch, uncommitted, .. } => (branch.as_deref(), *uncommitted),
        WorkspaceSpec::None | WorkspaceSpec::Directory(_) => (None, false),
    };
    let clone_spec = CloneSpec { branch, uncommitted, identity: &identity, name };
    let Cloned { at, remarks } = clones::clone(source, &clone_spec, into, owner)?;
    for remark in remarks {
        state.notice(&Notice::Outfit(format!("box {name}: {remark}")));
    }
    Ok(BoxWorkspace::Repo(Box::new(at)))
}

/// Creates a new private clone in the directory `next`, from the current state of the user's repository.
pub fn clone_again(
    state: &Scoped,
    named_box: &NamedBox,
    at: &RepoAt,
    next: &Path,
) -> Result<(), EngineError> {
    let owner = box_store::owner_of(&named_box.dir.join("repo"));
    let source = clones::find_source(state, &at.path)?;
    let into = next.join("repo");
    let ground = clone(state, &source, &named_box.record.spec, named_box.name(), (&into, owner))?;
    let record = BoxRecord { ground, ..named_box.record.clone() };
    let text = serde_json::to_vec_pretty(&record).kind(ErrorKind::Broken)?;
    box_store::write_atomically(next, "box.json", &text).kind(ErrorKind::Broken)
}

/// Returns the author of the box's commits if the user has not configured one for git.
fn default_identity(name: &BoxName) -> Result<Identity, EngineError> {
    let identity = Identity::new(&format!("box {name}"), &format!("{name}@belljar.invalid"));
    identity.kind(ErrorKind::Broken)
}

fn owner(path: &Path) -> Result<(u32, u32), EngineError> {
    let meta = path.metadata().context("cannot read the owner of the workspace");
    let meta = meta.kind(ErrorKind::Broken)?;
    Ok((meta.uid(), meta.gid()))
}
