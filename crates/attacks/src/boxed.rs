//! `belljar run` with the probe inside.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{Ended, Live, Program};
use crate::lab::Lab;
use crate::trial::{Step, fault};

/// Where a box has the probe.
pub(crate) const PROBE: &str = "/probe";

/// A box about to be run.
#[derive(Debug, Clone)]
pub(crate) struct Boxed<'a> {
    lab: &'a Lab,
    options: Vec<OsString>,
    workspace: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    input: Vec<u8>,
}

/// What `--json` said about a run, with all else that it said.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) ended: Ended,
    pub(crate) result: Value,
}

impl Lab {
    /// A box with all defaults, without a workspace.
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

    /// A host path with its place inside.
    pub(crate) fn mount(self, source: &Path, target_and_access: &str) -> Self {
        let mut mount = source.to_owned().into_os_string();
        mount.push(":");
        mount.push(target_and_access);
        self.option("--mount").option(mount)
    }

    /// A variable of the operator, which a box must not see.
    pub(crate) fn operator_env(
        mut self,
        key: impl Into<OsString>,
        value: impl Into<OsString>,
    ) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Where the operator stands when he starts the box.
    pub(crate) fn cwd(mut self, cwd: &Path) -> Self {
        self.cwd = cwd.to_owned();
        self
    }

    pub(crate) fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// The whole command, for a trial that starts it in a way of its own.
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

    pub(crate) fn start(&self, program: &[&str]) -> Step<Live> {
        self.command(program).start()
    }

    pub(crate) fn run(&self, program: &[&str]) -> Step<Ended> {
        self.command(program).run()
    }

    /// Runs with `--json` and reads the result, the last line of standard output.
    pub(crate) fn tell(&self, program: &[&str]) -> Step<Told> {
        Told::of(self.clone().option("--json").run(program)?)
    }

    /// The same with an act of the probe.
    pub(crate) fn tell_act(&self, act: &str) -> Step<Told> {
        self.tell(&words(act))
    }

    /// One act of the probe, and its answer.
    pub(crate) fn act(&self, act: &str) -> Step<String> {
        Ok(self.run(&words(act))?.line())
    }

    /// Many acts in one box, each in a process of its own.
    pub(crate) fn acts(&self, acts: &[&str]) -> Step<Vec<String>> {
        self.clone().input(acts.join("\n") + "\n").run(&[PROBE, "batch"])?.answers(acts)
    }
}

/// The probe's command line for an act.
pub(crate) fn words(act: &str) -> Vec<&str> {
    std::iter::once(PROBE).chain(act.split_whitespace()).collect()
}

impl Told {
    pub(crate) fn of(ended: Ended) -> Step<Self> {
        let text = ended.stdout_text();
        let last = text.lines().next_back().unwrap_or_default();
        match serde_json::from_str(last) {
            Ok(result @ Value::Object(_)) => Ok(Self { ended, result }),
            Ok(_) | Err(_) => Err(fault(format_args!(
                "`--json` said no object last (code {:?}): {text}{}",
                ended.code,
                ended.stderr_text()
            ))),
        }
    }

    pub(crate) fn reason(&self) -> &str {
        self.result.get("reason").and_then(Value::as_str).unwrap_or("none given")
    }

    /// `in_force`, `weakened` or `stand_in`.
    pub(crate) fn layer(&self, name: &str) -> &str {
        let layers = self.result.get("layers").and_then(Value::as_array);
        layers
            .into_iter()
            .flatten()
            .find(|layer| layer.get("layer").and_then(Value::as_str) == Some(name))
            .and_then(|layer| layer.get("state"))
            .and_then(Value::as_str)
            .unwrap_or("not told")
    }
}
