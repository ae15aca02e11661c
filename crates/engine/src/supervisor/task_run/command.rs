//! Runs the command of a task.

use std::ffi::OsString;
use std::os::fd::AsFd as _;

use belljar_box::{LayerSync, Stream};
use belljar_model::{Mode, Purpose, Reason};

use super::OutputLog;
use super::output::OutputFile;
use super::{
    ProgramEnd, TaskHost, TaskOutcome, TaskRunWorkspace, null, open_stdin, outcome_with_broker,
};
use crate::changes;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::launch::{self, DiskLimit, LaunchSpec, Launched, Streams};
use crate::policy;
use crate::scope::Scoped;
use crate::store::Run;
use crate::supervisor::spec::Rules;

/// A command whose box is built and recorded.
struct Started {
    run: Run,
    launched: Launched,
    has_layers: bool,
    files: (OutputFile, OutputLog),
    streams: [std::fs::File; 2],
}

impl TaskHost {
    /// Runs a command in the box of the task, and stores its standard output.
    pub(super) fn run_command(
        self,
        state: &Scoped,
        argv: Vec<OsString>,
    ) -> Result<(), EngineError> {
        let mut run = None;
        let started = match self.start_command(state, argv, &mut run) {
            Ok(started) => started,
            Err(error) => return self.fail(state, run.as_mut(), &error),
        };
        let Started { mut run, launched, has_layers, files, streams } = started;
        let (mut output, mut log) = files;
        let [input, null] = streams;
        let disk = launched.template().limits.disk.as_u64();
        let mut filter = |stream: Stream, chunk: &[u8], _: &mut Vec<u8>| match stream {
            Stream::Output => {
                if !output.push(chunk) {
                    self.stop.kill();
                }
            }
            Stream::Error => log.write(chunk),
        };
        let streams = Streams {
            input: input.as_fd(),
            output: null.as_fd(),
            error: null.as_fd(),
            filter: &mut filter,
            stop: Some(self.stopped.as_fd()),
        };
        let supervised = launched.supervise(state, streams, || ());
        // Nobody reviews what a check does to its own copy of the files.
        let is_copy = matches!(self.spec.workspace, TaskRunWorkspace::Checkout(_));
        let is_reviewed = has_layers && !is_copy;
        let changed = is_reviewed.then(|| changes::count_changes(&mut run, state, disk));
        let mut ended = match supervised {
            Ok(ended) => ended,
            Err(error) => {
                let outcome = TaskOutcome::Failed { error: format!("{error:#}") };
                let stored = self.store(ProgramEnd::without_program(outcome));
                launch::finish_run(&mut run, None, state);
                if is_copy {
                    belljar_workspace::discard(&self.dir).ok(); // the driver tries again
                }
                return stored;
            }
        };
        let is_too_large = output.is_too_large();
        let mut result = ended.result(changed);
        if is_too_large {
            result.reason = Reason::Output;
        }
        let mut outcome = TaskOutcome::of(result.reason, result.exit, result.signal);
        if is_too_large {
            outcome = TaskOutcome::TooLarge;
        } else if let (TaskOutcome::CannotStart { error }, Some(cause)) =
            (&mut outcome, &ended.finished.exec_error)
        {
            *error = format!("{error}: {cause}");
        }
        let summary = ended.network_summary.as_ref();
        let usage = summary.map(|summary| summary.usage).unwrap_or_default();
        let is_broker_gone = summary.is_some_and(|summary| summary.broker_gone);
        let outcome = outcome_with_broker(outcome, is_broker_gone);
        let (wall_micros, changed_files) = (result.wall_micros, changed);
        let output = Some(output);
        let kept = None;
        let stored =
            self.store(ProgramEnd { outcome, output, usage, wall_micros, changed_files, kept });
        let sealed = changed.filter(|changed| *changed > 0);
        let sealed = sealed.and_then(|_| changes::sealed_changes(&run));
        ended.record_or_notice(state, &result, sealed);
        launch::finish_run(&mut run, Some(result), state);
        drop(ended.teardown);
        if is_copy {
            belljar_workspace::discard(&self.dir).ok(); // the driver tries again
        }
        stored
    }

    /// Builds the box of a command and records its run. `run` is set as soon as the run has a record.
    fn start_command(
        &self,
        state: &Scoped,
        argv: Vec<OsString>,
        run: &mut Option<Run>,
    ) -> Result<Started, EngineError> {
        let Rules { template, sources, network, remarks } = self.spec.rules.clone();
        let mut launch =
            LaunchSpec::new((self.spec.run, state.new_id()?.1), Purpose::Task, template, argv);
        launch.template.mode = self.spec.workspace.mode();
        let path = self.spec.workspace.path();
        let workspace = match &self.spec.workspace {
            TaskRunWorkspace::Checkout(path) => Some(policy::open_checkout(path)?),
            TaskRunWorkspace::None
            | TaskRunWorkspace::ReadOnly(_)
            | TaskRunWorkspace::Overlay(_) => {
                path.map(|path| policy::open_workspace(state, path)).transpose()?
            }
        };
        launch.at =
            workspace.as_ref().map(launch::workspace_at).transpose().kind(ErrorKind::Broken)?;
        self.complete(&mut launch)?;
        let record = Run { dir: self.dir.clone(), record: launch.record() };
        record.save_new().kind(ErrorKind::CannotStart)?;
        let record = run.insert(record);
        (launch.sources, launch.remarks) = (sources, remarks);
        launch.network = network.map(|network| network.open(state)).transpose()?;
        if let Some(network) = &mut launch.network {
            network.follow(self.lease.clone());
        }
        launch.masks = self.spec.masks.clone();
        launch.workspace = workspace;
        launch.output_dir = Some(self.dir.clone());
        let overlay = launch.template.mode != Mode::ReadOnly;
        if let Some(workspace) = launch.workspace.as_mut().filter(|_| overlay) {
            launch::prepare_layers(record, workspace, LayerSync::Skipped)
                .kind(ErrorKind::CannotStart)?;
            launch.disk = Some(DiskLimit::of_layers(self.dir.clone()));
        }
        let has_layers = launch.disk.is_some();
        let files = self.create_files()?;
        let input = open_stdin(self.spec.inputs.as_deref(), self.spec.stdin.as_deref());
        let streams = [input.kind(ErrorKind::CannotStart)?, null().kind(ErrorKind::CannotStart)?];
        let launched = launch::launch(state, launch)?;
        let run = Run { dir: record.dir.clone(), record: record.record.clone() };
        Ok(Started { run, launched, has_layers, files, streams })
    }
}
