//! Runs the program of a `code` task, or the question of a `model` task, in the worker.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use belljar_box::LayerSync;
use belljar_model::{Mode, Purpose, Reason, RunId};
use belljar_wire::{Job, ModelAnswer, ModelFailureKind, ProgramError, ProgramResult};

use super::OutputLog;
use super::output::OutputFile;
use super::{ProgramEnd, TaskHost, TaskOutcome, outcome_with_broker};
use crate::changes;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::launch::{self, DiskLimit, LaunchSpec};
use crate::logging;
use crate::policy;
use crate::scope::Scoped;
use crate::store::Run;
use crate::supervisor::connection::{receive, send};
use crate::supervisor::program::{self, EndedProgram};
use crate::supervisor::protocol::{FromSupervisor, ToSupervisor};
use crate::supervisor::spec::{ProgramBox, ProgramWorkspace, Task};

impl TaskHost {
    /// Runs a script in the box of the task, and stores the value that it returns.
    pub(super) fn run_code(
        self,
        state: &Scoped,
        job: Job,
        worker: std::os::fd::OwnedFd,
    ) -> Result<(), EngineError> {
        let scratch = self.dir.join("scratch");
        let is_model = matches!(job, Job::Model(_));
        let mut run = None;
        let program = self.start_code(state, job, worker, &scratch, &mut run);
        let removed = || {
            fs::remove_dir_all(&scratch).ok(); // `Store::prune` removes it with the run
        };
        let (program, mut output) = match program {
            Ok(program) => program,
            Err(error) => {
                removed();
                return self.fail(state, run.as_mut(), &error);
            }
        };
        let EndedProgram { mut ended, ending, outputs, usage, is_too_large, is_broker_gone } =
            program;
        let disk = self.spec.rules.template.limits.disk.as_u64();
        let changed = (self.spec.workspace.mode() == Mode::Overlay)
            .then(|| run.as_mut().map(|run| changes::count_changes(run, state, disk)))
            .flatten();
        let mut result = ended.result(changed);
        let outcome = match ending.done {
            _ if is_too_large => {
                result.reason = Reason::Output;
                TaskOutcome::TooLarge
            }
            Some(done) if is_model => match answer(done) {
                Ok(text) if output.push(text.as_bytes()) => TaskOutcome::Exited { status: 0 },
                Ok(_) => TaskOutcome::TooLarge,
                Err(outcome) => outcome,
            },
            Some(done) => match (done.trouble, done.value) {
                (Some(error), _) => TaskOutcome::Threw { error: text(&error) },
                (None, value) => {
                    let value = value.as_ref().map_or("null", |value| value.get());
                    match output.push(value.as_bytes()) {
                        true => TaskOutcome::Exited { status: 0 },
                        false => TaskOutcome::TooLarge,
                    }
                }
            },
            None => without_result(TaskOutcome::of(result.reason, result.exit, result.signal)),
        };
        let outcome = outcome_with_broker(outcome, is_broker_gone);
        let output = (outcome != TaskOutcome::TooLarge).then_some(output);
        if output.is_none() {
            fs::remove_file(self.dir.join(super::files::OUTPUT)).ok(); // it is empty
        }
        let (wall_micros, changed_files, kept) = (result.wall_micros, changed, None);
        let stored =
            self.store(ProgramEnd { outcome, output, usage, wall_micros, changed_files, kept });
        ended.outputs = outputs;
        let sealed = changed.filter(|changed| *changed > 0);
        let sealed = sealed.and(run.as_ref()).and_then(changes::sealed_changes);
        ended.record_or_notice(state, &result, sealed);
        if let Some(run) = &mut run {
            launch::finish_run(run, Some(result), state);
        }
        drop(ended.teardown);
        removed();
        stored
    }

    /// Builds the box, records the run and runs the script until it ends.
    fn start_code(
        &self,
        state: &Scoped,
        job: Job,
        worker: std::os::fd::OwnedFd,
        scratch: &std::path::Path,
        run: &mut Option<Run>,
    ) -> Result<(EndedProgram, OutputFile), EngineError> {
        let create = |dir: &std::path::Path| {
            let created = DirBuilder::new().mode(0o700).recursive(true).create(dir);
            created.context("cannot create the scratch directory").kind(ErrorKind::CannotStart)
        };
        create(&scratch.join("upper"))?;
        let workspace = ProgramWorkspace::Scratch { dir: scratch.to_owned() };
        let of = ProgramBox { rules: self.spec.rules.clone(), workspace: workspace.clone() };
        let timeout = of.rules.template.limits.timeout;
        let id: (RunId, u32) = (self.spec.run, state.new_id()?.1);
        let (mut launch, recorder) = program::launch_spec(state, of, id, Purpose::Task, worker)?;
        self.open_workspace(state, &mut launch)?;
        self.complete(&mut launch)?;
        if let Some(network) = &mut launch.network {
            network.follow(self.lease.clone());
        }
        let has_layers = self.spec.workspace.mode() == Mode::Overlay;
        let name = if matches!(job, Job::Model(_)) { "model" } else { "code" };
        let command = vec![name.to_owned(), self.spec.task.clone()];
        launch.recorded_argv = Some(command.clone());
        let record = Run { dir: self.dir.clone(), record: launch.record() };
        record.save_new().kind(ErrorKind::CannotStart)?;
        let record = run.insert(record);
        if let Some(workspace) = launch.workspace.as_mut().filter(|_| has_layers) {
            launch::prepare_layers(record, workspace, LayerSync::Skipped)
                .kind(ErrorKind::CannotStart)?;
        }
        let (output, log) = self.create_files()?;
        let timeout = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let max = self.spec.max_output;
        let task = Task { job, command, timeout_millis: timeout, output: max };
        let pair = UnixStream::pair().context("cannot create a socket pair");
        let (connection, client) = pair.kind(ErrorKind::CannotStart)?;
        let (done, is_done) = mpsc::channel();
        let stopped = self.stopped.try_clone().context("cannot duplicate a pipe");
        let stopped = stopped.kind(ErrorKind::CannotStart)?;
        let closing = client.try_clone().context("cannot duplicate a socket");
        let closing = closing.kind(ErrorKind::CannotStart)?;
        let prepared = launch::prepare(state, launch)?;
        logging::spawn(move || cancel_when_stopped(&stopped, &closing));
        logging::spawn(move || {
            follow(&client, log);
            done.send(()).ok(); // the host may have stopped waiting
        });
        let program = program::run(state, &connection, (prepared, &workspace), recorder, task);
        connection.shutdown(std::net::Shutdown::Both).ok(); // the other side reads to the end
        is_done.recv_timeout(Duration::from_secs(5)).ok(); // the log is complete after that
        Ok((program?, output))
    }

    /// Replaces the scratch directory of a box by the workspace of the task, if it has one.
    fn open_workspace(&self, state: &Scoped, launch: &mut LaunchSpec) -> Result<(), EngineError> {
        let Some(path) = self.spec.workspace.user_path() else { return Ok(()) };
        let workspace = policy::open_workspace(state, path)?;
        launch.at = Some(launch::workspace_at(&workspace).kind(ErrorKind::Broken)?);
        launch.template.mode = self.spec.workspace.mode();
        launch.masks = self.spec.masks.clone();
        launch.workspace = Some(workspace);
        let has_layers = launch.template.mode != Mode::ReadOnly;
        launch.disk = has_layers.then(|| DiskLimit::of_layers(self.dir.clone()));
        Ok(())
    }
}

/// Returns the outcome of a worker that ended without a result. `process.exit` in a script has a result, and
/// a script cannot kill its worker. So such an end says nothing about the script, and the ledger decides
/// whether the attempt is repeated.
fn without_result(outcome: TaskOutcome) -> TaskOutcome {
    let end = if let TaskOutcome::Exited { status } = outcome {
        format!("exited with status {status}")
    } else if let TaskOutcome::Signaled { signal } = outcome {
        format!("was killed by signal {signal}")
    } else {
        return outcome;
    };
    TaskOutcome::Failed { error: format!("the worker {end} without a result") }
}

/// Writes the output of the script to the log, and refuses its calls of tools.
fn follow(client: &UnixStream, mut log: OutputLog) {
    while let Ok(Some(message)) = receive::<FromSupervisor>(client) {
        if let FromSupervisor::Output { text, .. } = message {
            log.write(text.as_bytes());
        } else if let FromSupervisor::ToolCall { id, .. } = message {
            let value = Err("a task cannot call tools".to_owned());
            if send(client, &ToSupervisor::ToolAnswer { id, value }).is_err() {
                return;
            }
        }
    }
}

/// Closes the connection of the script when the driver kills the box. That ends the script.
fn cancel_when_stopped(stopped: &std::os::fd::OwnedFd, client: &UnixStream) {
    let mut polled = [rustix::event::PollFd::new(stopped, rustix::event::PollFlags::IN)];
    while rustix::event::poll(&mut polled, None) == Err(rustix::io::Errno::INTR) {}
    client.shutdown(std::net::Shutdown::Both).ok(); // the script may have ended
}

/// Returns the answer of a model, or the outcome of a request without an answer. The worker is untrusted.
fn answer(done: ProgramResult) -> Result<String, TaskOutcome> {
    let failed = |kind: ModelFailureKind, error: String| TaskOutcome::NoAnswer {
        kind: kind.name().to_owned(),
        error,
    };
    if let Some(error) = done.trouble {
        let kind = ModelFailureKind::named(&error.name).unwrap_or(ModelFailureKind::Invalid);
        return Err(failed(kind, error.message));
    }
    let value = done.value.as_ref().map_or("null", |value| value.get());
    let answer: Result<ModelAnswer, _> = serde_json::from_str(value);
    answer.map(|answer| answer.text).map_err(|error| {
        failed(ModelFailureKind::Invalid, format!("the worker sent an invalid answer: {error}"))
    })
}

/// Returns an exception in one line.
fn text(error: &ProgramError) -> String {
    let ProgramError { name, message, line, .. } = error;
    match line {
        Some(line) => format!("{name}: {message} (line {line})"),
        None => format!("{name}: {message}"),
    }
}
