//! Builds and runs `belljar run` commands that execute the probe in a box.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{Ended, Process, Program};
use crate::lab::Lab;
use crate::trial::{Step, fault};

/// Path of the probe inside a box.
pub(crate) const PROBE: &str = "/probe";

/// A `belljar run` command under construction.
#[derive(Debug, Clone)]
pub(crate) struct Boxed<'a> {
    lab: &'a Lab,
    options: Vec<OsString>,
    workspace: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    input: Vec<u8>,
}

/// The JSON result of a run, with its exit code and output.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) ended: Ended,
    pub(crate) json: Value,
}

impl Lab {
    /// Returns a `belljar run` command with defaults and without a workspace.
    pub(crate) fn boxed(&self) -> Boxed<'_> {
        let mut mount = self.probe.clone().into_os_string();
        mount.push(":");
        mount.push(PROBE);
        mount.push(":ro");
        Boxed {
            lab: self,
            options: vec!["--mount".into(), mount],
            workspace: None,
            env: Vec::new(),
            cwd: self.dir.clone(),
            input: Vec::new(),
        }
    }
}

impl Boxed<'_> {
    pub(crate) fn option(mut self, option: impl Into<OsString>) -> Self {
        self.options.push(option.into());
        self
    }

    pub(crate) fn options(self, options: &[&str]) -> Self {
        options.iter().fold(self, |it, option| it.option(*option))
    }

    pub(crate) fn workspace(mut self, workspace: &Path) -> Self {
        self.workspace = Some(workspace.to_owned());
        self
    }

    pub(crate) fn direct(self, workspace: &Path) -> Self {
        self.workspace(workspace).options(&["--mode", "direct"])
    }

    pub(crate) fn weaken(self, layer: &str) -> Self {
        self.options(&["--weaken", layer])
    }

    pub(crate) fn user(self, uid: &str) -> Self {
        self.options(&["--user", uid])
    }

    /// Adds an option that mounts a host path in the box.
    pub(crate) fn mount(self, source: &Path, target_and_access: &str) -> Self {
        let mut mount = source.to_owned().into_os_string();
        mount.push(":");
        mount.push(target_and_access);
        self.option("--mount").option(mount)
    }

    /// Sets a variable of the operator's environment, which a box must not inherit.
    pub(crate) fn operator_env(
        mut self,
        key: impl Into<OsString>,
        value: impl Into<OsString>,
    ) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Sets the working directory of the `belljar` command.
    pub(crate) fn cwd(mut self, cwd: &Path) -> Self {
        self.cwd = cwd.to_owned();
        self
    }

    pub(crate) fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Returns the complete `belljar run` command, for attacks that start it themselves.
    pub(crate) fn command(&self, program: &[&str]) -> Program {
        let mut run = self.lab.belljar(&["run"]).cwd(&self.cwd).input(self.input.clone());
        for (key, value) in &self.env {
            run = run.env(key, value);
        }
        run = match &self.workspace {
            Some(workspace) => run.arg("--workspace").arg(workspace),
            None => run.arg("--no-workspace"),
        };
        run.args(&self.options).arg("--").args(program)
    }

    pub(crate) fn start(&self, program: &[&str]) -> Step<Process> {
        self.command(program).start()
    }

    pub(crate) fn run(&self, program: &[&str]) -> Step<Ended> {
        self.command(program).run()
    }

    /// Runs a program in a box with `--json` and parses the result, the last line of standard
    /// output.
    pub(crate) fn run_json(&self, program: &[&str]) -> Step<RunResult> {
        RunResult::parse(self.clone().option("--json").run(program)?)
    }

    /// Runs one operation of the probe in a box with `--json` and parses the result of the run.
    pub(crate) fn act_json(&self, act: &str) -> Step<RunResult> {
        self.run_json(&probe_args(act))
    }

    /// Runs one operation of the probe in a box and returns its result.
    pub(crate) fn act(&self, act: &str) -> Step<String> {
        Ok(self.run(&probe_args(act))?.line())
    }

    /// Runs several operations of the probe in one box, each in its own process, and returns their
    /// results.
    pub(crate) fn acts(&self, acts: &[&str]) -> Step<Vec<String>> {
        self.clone().input(acts.join("\n") + "\n").run(&[PROBE, "batch"])?.answers(acts)
    }
}

/// Returns the command line that runs the operation `act` of the probe.
pub(crate) fn probe_args(act: &str) -> Vec<&str> {
    std::iter::once(PROBE).chain(act.split_whitespace()).collect()
}

impl RunResult {
    /// Parses the last line of the output of `belljar run --json` as the result of the run.
    pub(crate) fn parse(ended: Ended) -> Step<Self> {
        let text = ended.stdout_text();
        let last = text.lines().next_back().unwrap_or_default();
        match serde_json::from_str(last) {
            Ok(json @ Value::Object(_)) => Ok(Self { ended, json }),
            Ok(_) | Err(_) => Err(fault(format_args!(
                "the last line of `--json` is not an object (code {:?}): {text}{}",
                ended.code,
                ended.stderr_text()
            ))),
        }
    }

    /// Returns why the run ended, such as `exited` or `timeout`.
    pub(crate) fn reason(&self) -> &str {
        self.json.get("reason").and_then(Value::as_str).unwrap_or("missing")
    }

    /// Returns the reported state of an isolation layer: `in_force`, `weakened` or `stand_in`.
    pub(crate) fn layer(&self, name: &str) -> &str {
        let layers = self.json.get("layers").and_then(Value::as_array);
        layers
            .into_iter()
            .flatten()
            .find(|layer| layer.get("layer").and_then(Value::as_str) == Some(name))
            .and_then(|layer| layer.get("state"))
            .and_then(Value::as_str)
            .unwrap_or("missing")
    }
}
