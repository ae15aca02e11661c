//! Runs the agent of a task in a private clone, and takes over its commits.
//!
//! ```text
//! clone ──▶ box: agent with the prompt on standard input ──▶ read and check the clone ──▶ reference, output
//! ```
//! The clone and the home directory are in the directory of the box run and are removed at the end. The
//! commits are checked by the import of [`crate::clones`]. No branch of the user moves: the commits go to a
//! reference below `refs/belljar`. The reference is written before the result. The next attempt, after a loss
//! between the two or after a rejection, renames it. The commits of an agent that failed have a reference too.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_box::{HomeMount, Mask, Stream, Workspace};
use belljar_model::boxes::BoxName;
use belljar_model::permission::Permissions;
use belljar_model::{Identity, Mode, Purpose, RepoAt, display};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::spec::AgentWork;
use super::{
    ExecTarget, OutputFile, OutputLog, ProgramEnd, TaskHost, TaskOutcome, files, null, open_stdin,
    outcome_with_broker,
};
use crate::agents::HomeFile;
use crate::box_store;
use crate::clones::{self, CloneSpec, Cloned, ResolvedBase, Source, SourceOption, Work};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::launch::{self, DiskLimit, LaunchSpec, Launched, Streams};
use crate::network::NetworkSpec;
use crate::network::broker::NetworkSummary;
use crate::policy;
use crate::scope::Scoped;
use crate::store::{Run, durable};
use crate::supervisor::setup::gitconfig;
use crate::supervisor::spec::Rules;

/// The maximum size of the last message of an agent in bytes.
const MAX_MESSAGE: usize = 16 << 10;
/// The maximum number of changed files that an output lists.
const MAX_FILES: usize = 200;

/// An agent whose box is built and recorded.
struct Started {
    run: Run,
    launched: Launched,
    files: (OutputFile, OutputLog),
    streams: [std::fs::File; 2],
    at: RepoAt,
    permissions: Permissions,
}

/// The source of an agent's clone.
#[derive(Serialize, Deserialize)]
pub(crate) struct ClonedAt {
    pub(crate) name: BoxName,
    pub(crate) at: RepoAt,
}

/// The parts of the box that the description of the agent defines.
struct AgentBox {
    rules: Rules,
    argv: Vec<OsString>,
    masks: Vec<Mask>,
    files: Vec<(PathBuf, Vec<u8>)>,
    home: Vec<HomeFile>,
    permissions: Permissions,
}

impl TaskHost {
    /// Runs an agent in the box of the task, and stores a description of its commits.
    pub(super) fn run_agent(self, state: &Scoped, work: &AgentWork) -> Result<(), EngineError> {
        let mut run = None;
        let done = match self.start_agent(state, work, &mut run) {
            Ok(started) => self.finish_agent(state, work, started),
            Err(error) => self.fail(state, run.as_mut(), &error),
        };
        remove_agent_files(&self.dir);
        done
    }

    /// Creates the clone, builds the box and records its run. `run` is set as soon as the run has a record.
    fn start_agent(
        &self,
        state: &Scoped,
        work: &AgentWork,
        run: &mut Option<Run>,
    ) -> Result<Started, EngineError> {
        let source = clones::find_source_for(state, &work.repo, SourceOption::TaskRepo)?;
        let owner = fs::metadata(source.path()).map(|meta| (meta.uid(), meta.gid()));
        let owner = owner.context("cannot read the owner of the repository");
        let owner = Some(owner.kind(ErrorKind::CannotStart)?);
        let identity = identity(&source, work)?;
        let clone = self.dir.join(files::CLONE);
        let spec =
            CloneSpec { branch: None, uncommitted: false, identity: &identity, name: &work.name };
        let base = ResolvedBase { commit: work.base.clone(), branch: work.branch.clone() };
        let Cloned { at, remarks } = clones::clone_at(&source, &spec, &base, &clone, owner)?;
        self.describe_clone(&ClonedAt { name: work.name.clone(), at: at.clone() })?;
        if let Some(earlier) = self.spec.attempt.checked_sub(1).filter(|earlier| *earlier > 0) {
            // A check rejected the commits, or the earlier attempt was lost after it stored them.
            let kept = work.failed_reference(earlier);
            clones::move_reference(state, &at, &work.reference, &kept)?;
        }
        let AgentBox { rules, argv, masks, files, home, permissions } =
            self.agent_box(state, work, (&at.path, &clone))?;
        let Rules { template, sources, network, .. } = rules;
        let random = state.new_id()?.1;
        let mut launch = LaunchSpec::new((self.spec.run, random), Purpose::Task, template, argv);
        launch.template.mode = Mode::Overlay; // the box writes to the clone only
        launch.at = repository_at(&at.path);
        self.complete(&mut launch)?;
        let record = Run { dir: self.dir.clone(), record: launch.record() };
        record.save_new().kind(ErrorKind::CannotStart)?;
        let record = run.insert(record);
        launch.remarks = remarks;
        launch.sources = sources;
        launch.network = network.map(|network| network.open(state)).transpose()?;
        if let Some(network) = &mut launch.network {
            network.follow(self.lease.clone());
        }
        launch.masks = masks;
        launch.files = files;
        launch.files.push(gitconfig(state, Some(&identity)));
        launch.workspace = Some(open_clone(&clone)?);
        launch.home = Some(self.agent_home(&home, owner)?);
        launch.output_dir = Some(self.dir.clone());
        let measured = [files::CLONE, files::HOME].map(|name| self.dir.join(name));
        let measured = Some(measured.to_vec());
        launch.disk = Some(DiskLimit { dir: self.dir.clone(), measured });
        launch.exec_channel = true;
        let files = self.create_files()?;
        let input = open_stdin(self.spec.inputs.as_deref(), self.spec.stdin.as_deref());
        let streams = [input.kind(ErrorKind::CannotStart)?, null().kind(ErrorKind::CannotStart)?];
        let launched = launch::launch(state, launch)?;
        let run = Run { dir: record.dir.clone(), record: record.record.clone() };
        Ok(Started { run, launched, files, streams, at, permissions })
    }

    /// Stores where the clone comes from, so that a command can read the work of the running agent.
    fn describe_clone(&self, cloned: &ClonedAt) -> Result<(), EngineError> {
        let text = serde_json::to_vec(cloned).kind(ErrorKind::Broken)?;
        fs::write(self.dir.join(files::CLONED_AT), text)
            .map_err(|error| durable::with_disk_full_hint(error, &self.dir))
            .context("cannot describe the private clone")
            .kind(ErrorKind::CannotStart)
    }

    /// Combines the template of the task with the description of the agent.
    fn agent_box(
        &self,
        state: &Scoped,
        work: &AgentWork,
        (repo, clone): (&Path, &Path),
    ) -> Result<AgentBox, EngineError> {
        let template = self.spec.rules.template.clone();
        let (config, sources) = state.load_config(Some(repo))?;
        let permissions = config.permissions(&template.name);
        let has_host_programs = template.rootfs.is_none();
        let outfit = work.agent.outfit(state, &permissions, Some(clone), has_host_programs)?;
        let (argv, made) = (outfit.argv, outfit.made);
        let config = config.with_secrets(made.secrets);
        let template = template.with(made.overrides).kind(ErrorKind::Invalid)?;
        let mut template =
            template.anchored(&work.current_dir, state.host().user_home().as_deref());
        state.clamp(&mut template.limits)?;
        policy::refuse_own_program(state.host(), &template, Some(repo))?;
        let mut network = NetworkSpec::of(&template, &config, state.host())?;
        if let Some(network) = &mut network {
            network.remove(&work.removed);
            network.limit(self.spec.lease);
        }
        let rules = Rules { template, sources, network, remarks: Vec::new() };
        let (masks, files, home) = (made.masks, made.files, made.home);
        Ok(AgentBox { rules, argv, masks, files, home, permissions })
    }

    /// Creates the home directory of the agent.
    fn agent_home(
        &self,
        content: &[HomeFile],
        owner: Option<(u32, u32)>,
    ) -> Result<HomeMount, EngineError> {
        let home = self.dir.join(files::HOME);
        let create = || -> anyhow::Result<HomeMount> {
            DirBuilder::new().mode(0o755).create(&home)?;
            box_store::set_owner(&[&home], owner)?;
            box_store::write_home_files(&home, content, owner)?;
            let (place, path) = belljar_box::open(&home)?;
            Ok(HomeMount { place, path })
        };
        create()
            .context("cannot create the home directory of the agent")
            .kind(ErrorKind::CannotStart)
    }

    /// Waits for the end of the agent, takes over its commits and stores the result.
    fn finish_agent(
        &self,
        state: &Scoped,
        work: &AgentWork,
        started: Started,
    ) -> Result<(), EngineError> {
        let Started {
            mut run,
            mut launched,
            files: (mut output, mut log),
            streams,
            at,
            permissions,
        } = started;
        let target = ExecTarget::new(
            state.clone(),
            work.name.clone(),
            self.spec.run,
            launched.take_exec_channel(),
        );
        self.exec.set(target).ok(); // it is set once
        let [input, null] = streams;
        let mut message = LastMessage::default();
        let mut filter = |stream: Stream, chunk: &[u8], _: &mut Vec<u8>| {
            log.write(chunk);
            if let Stream::Output = stream {
                message.push(chunk);
            }
        };
        let streams = Streams {
            input: input.as_fd(),
            output: null.as_fd(),
            error: null.as_fd(),
            filter: &mut filter,
            stop: Some(self.stopped.as_fd()),
        };
        let mut ended = match launched.supervise(state, streams, || ()) {
            Ok(ended) => ended,
            Err(error) => {
                let outcome = TaskOutcome::Failed { error: format!("{error:#}") };
                let stored = self.store(ProgramEnd::without_program(outcome));
                launch::finish_run(&mut run, None, state);
                return stored;
            }
        };
        let result = ended.result(None);
        let mut outcome = TaskOutcome::of(result.reason, result.exit, result.signal);
        if let (TaskOutcome::CannotStart { error }, Some(cause)) =
            (&mut outcome, &ended.finished.exec_error)
        {
            *error = format!("{error}: {cause}");
        }
        let summary = ended.network_summary.as_ref();
        let is_broker_gone = summary.is_some_and(|summary| summary.broker_gone);
        outcome = outcome_with_broker(outcome, is_broker_gone);
        if let (TaskOutcome::Exited { status: 1.. }, Some(error)) =
            (&outcome, summary.and_then(unavailable))
        {
            outcome = TaskOutcome::Unavailable { error };
        }
        if outcome.is_success() {
            outcome = self.take_over(state, work, (&at, &permissions), &message, &mut output);
        }
        let has_failed = !outcome.is_success() && outcome != TaskOutcome::NoChange;
        let kept = has_failed.then(|| self.keep(state, work, &at)).flatten();
        let usage = summary.map(|summary| summary.usage).unwrap_or_default();
        let has_output = outcome.is_success();
        let output = has_output.then_some(output);
        if !has_output {
            fs::remove_file(self.dir.join(files::OUTPUT)).ok(); // it is empty
        }
        let (wall_micros, changed_files) = (result.wall_micros, None);
        let stored =
            self.store(ProgramEnd { outcome, output, usage, wall_micros, changed_files, kept });
        ended.record_or_notice(state, &result, None);
        launch::finish_run(&mut run, Some(result), state);
        drop(ended.teardown);
        stored
    }

    /// Stores the commits of an agent that failed, if it made some. Returns their reference.
    ///
    /// Nothing is kept of an agent that a person cancelled.
    fn keep(&self, state: &Scoped, work: &AgentWork, at: &RepoAt) -> Option<String> {
        let read = clones::read_work(state, &work.name, at, &self.dir.join(files::CLONE));
        let made = read.ok().flatten().filter(|made| !made.is_empty())?;
        if self.stop.is_requested() {
            return None;
        }
        let reference = work.failed_reference(self.spec.attempt);
        match clones::save_work_at(at, &made, &reference) {
            Ok(()) => Some(reference),
            Err(error) => {
                tracing::warn!(kind = ?error.kind(), "commits of a failed attempt are not kept");
                None
            }
        }
    }

    /// Checks the commits of the clone, stores them in the user's repository, and writes the output.
    fn take_over(
        &self,
        state: &Scoped,
        work: &AgentWork,
        (at, permissions): (&RepoAt, &Permissions),
        message: &LastMessage,
        output: &mut OutputFile,
    ) -> TaskOutcome {
        let read = clones::read_work(state, &work.name, at, &self.dir.join(files::CLONE));
        let taken = read.and_then(|made| {
            let Some(mut made) = made.filter(|made| !made.is_empty()) else { return Ok(None) };
            made.deny(&|path| {
                let rule = permissions.denies_edit(path.as_os_str().as_bytes())?;
                Some(format!("the rule {rule} denies changes of this file"))
            });
            let text = description(work, &made, message)?;
            if self.stop.is_requested() {
                return Ok(Some(None));
            }
            clones::save_work_at(at, &made, &work.reference)?;
            Ok(Some(Some(text)))
        });
        match taken {
            Ok(None) => TaskOutcome::NoChange,
            Ok(Some(None)) => TaskOutcome::Killed,
            Ok(Some(Some(text))) => match output.push(text.as_bytes()) {
                true => TaskOutcome::Exited { status: 0 },
                false => TaskOutcome::TooLarge,
            },
            // The text can contain names from the box.
            Err(error) => TaskOutcome::Invalid { error: display::safe_line(format!("{error:#}")) },
        }
    }
}

/// Removes the clone and the home directory of an agent.
pub(crate) fn remove_agent_files(dir: &Path) {
    for name in [files::CLONE, files::HOME] {
        let path = dir.join(name);
        if path.symlink_metadata().is_ok() {
            belljar_workspace::remove_tree(&path).ok(); // `Store::prune` removes it with the run
        }
    }
    fs::remove_file(dir.join(files::CLONED_AT)).ok(); // it says nothing without the clone
}

/// Returns the author of the commits: the user's, or the name of the task.
fn identity(source: &Source, work: &AgentWork) -> Result<Identity, EngineError> {
    if let Some(identity) = source.identity() {
        return Ok(identity);
    }
    let name = &work.name;
    let identity = Identity::new(&format!("task {name}"), &format!("{name}@belljar.invalid"));
    identity.kind(ErrorKind::Broken)
}

fn open_clone(clone: &Path) -> Result<Workspace, EngineError> {
    let opened = belljar_box::open(clone).context("cannot open the private clone");
    let (place, path) = opened.kind(ErrorKind::CannotStart)?;
    Ok(Workspace { place, path, layers: None, scratch: true })
}

/// Describes the repository of the user, for the record of the run.
fn repository_at(path: &Path) -> Option<belljar_model::WorkspaceAt> {
    let (place, path) = belljar_box::open(path).ok()?;
    launch::workspace_at(&Workspace { place, path, layers: None, scratch: false }).ok()
}

/// Returns the output of the task: the commits, the changed files and the last message of the agent.
fn description(
    work: &AgentWork,
    made: &Work,
    message: &LastMessage,
) -> Result<String, EngineError> {
    let stat = clones::stat(made)?;
    let changed = made.files.iter().take(MAX_FILES).map(|file| {
        json!({
            "path": file.path.to_string_lossy(),
            "kind": file.kind,
            "risky": file.risky,
            "denied": file.denied,
        })
    });
    let text = json!({
        "commit": made.tip,
        "base": made.base,
        "reference": work.reference,
        "commits": made.commit_count,
        "uncommitted": made.uncommitted,
        "files": stat.files,
        "added": stat.added,
        "removed": stat.removed,
        "changed": changed.collect::<Vec<_>>(),
        "remarks": made.remarks,
        "message": message.text(),
    });
    Ok(format!("{text:#}\n"))
}

/// Returns why the model of an agent was not available, if its last request shows that.
fn unavailable(summary: &NetworkSummary) -> Option<String> {
    let last = summary.requests.iter().rfind(|request| request.allowed)?;
    if summary.more_requests > 0 {
        return None; // the last request is not known
    }
    let what = match last.status {
        None => "no response".to_owned(),
        Some(status @ (408 | 409 | 429 | 500..)) => format!("status {status}"),
        Some(_) => return None,
    };
    let url = last.url.split(['?', '#']).next().unwrap_or_default();
    Some(display::safe_line(format!("{what} to {} {url}", last.method)))
}

/// The end of the standard output of an agent.
#[derive(Default)]
struct LastMessage {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl LastMessage {
    fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
        let excess = self.bytes.len().saturating_sub(MAX_MESSAGE);
        self.is_cut |= excess > 0;
        self.bytes.drain(..excess);
    }

    /// Returns the message without control characters.
    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let text = if self.is_cut { format!("…{text}") } else { text.into_owned() };
        display::safe_multiline(text.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::broker::RequestSummary;

    fn summary(statuses: &[(bool, Option<u16>)], more_requests: u64) -> NetworkSummary {
        let request = |(allowed, status): &(bool, Option<u16>)| RequestSummary {
            method: "POST".to_owned(),
            url: "https://api.example.com/v1/messages?beta=1".to_owned(),
            allowed: *allowed,
            status: *status,
            secrets: Vec::new(),
        };
        let requests = statuses.iter().map(request).collect();
        let mut summary = NetworkSummary::default();
        (summary.requests, summary.more_requests) = (requests, more_requests);
        summary
    }

    #[test]
    fn model_is_unavailable_only_if_the_last_allowed_request_shows_it() {
        let found = |statuses: &[(bool, Option<u16>)]| unavailable(&summary(statuses, 0));
        let overloaded = "status 529 to POST https://api.example.com/v1/messages";
        assert_eq!(found(&[(true, Some(200)), (true, Some(529))]).as_deref(), Some(overloaded));
        assert_eq!(found(&[(true, Some(529)), (false, None)]).as_deref(), Some(overloaded));
        assert!(found(&[(true, None)]).is_some());
        assert_eq!(found(&[(true, Some(529)), (true, Some(200))]), None);
        assert_eq!(found(&[(true, Some(401))]), None);
        assert_eq!(found(&[]), None);
        assert_eq!(unavailable(&summary(&[(true, Some(529))], 1)), None);
    }

    #[test]
    fn last_message_is_the_end_of_the_output_without_control_characters() {
        let mut message = LastMessage::default();
        message.push(b"\n done \x1b]52;c;x\x07\n");
        assert!(!message.text().contains('\x1b'), "{}", message.text());
        message.push(&[b'x'; MAX_MESSAGE]);
        message.push(b"end");
        let text = message.text();
        assert!(text.starts_with('…') && text.ends_with("xend"), "{}", text.len());
        assert_eq!(message.bytes.len(), MAX_MESSAGE);
    }
}
