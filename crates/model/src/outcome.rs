//! The result of a run: exit status, reason, resource use and state of the layers.

use serde::{Deserialize, Serialize};

use crate::id::{RunId, RunName};
use crate::layer::Layer;
use crate::limits::Limits;

/// The result of a finished run, as `--json` prints it and `run.json` stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    pub run: RunId,
    pub name: Option<RunName>,
    /// The exit status of the program, if it exited.
    pub exit: Option<i32>,
    /// The signal that killed the program, if any.
    pub signal: Option<i32>,
    pub reason: Reason,
    /// The time from the start of Belljar to the start of the program, in microseconds.
    pub setup_micros: u64,
    /// The time from the start of the program to its end, in microseconds.
    pub wall_micros: u64,
    pub cpu_micros: CpuTime,
    /// The peak memory use in bytes; `None` if the machine cannot measure it.
    pub peak_memory_bytes: Option<u64>,
    pub stdin_bytes: u64,
    pub output_bytes: OutputBytes,
    /// The number of changed files; `None` for a box without an overlay of its workspace.
    pub changed_files: Option<u64>,
    pub layers: Vec<LayerState>,
    pub limits: Limits,
}

/// CPU time of all processes of a box, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    pub user: u64,
    pub system: u64,
}

/// Number of bytes that a program wrote to each output stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputBytes {
    pub stdout: u64,
    pub stderr: u64,
}

/// An isolation layer and its state during a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerState {
    pub layer: Layer,
    #[serde(flatten)]
    pub state: InForce,
}

/// The state of an isolation layer: in force, weakened by the operator, or replaced by a
/// substitute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum InForce {
    /// The isolation layer works as designed; `detail` names the mechanism, for example `abi 6` or
    /// `v2, delegated`.
    InForce { detail: String },
    /// The operator turned the isolation layer off.
    Weakened,
    /// A weaker mechanism replaces the isolation layer, because this machine does not support the
    /// layer.
    StandIn { mechanism: String },
}

/// The reason why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    Exited,
    Signaled,
    Timeout,
    Memory,
    Pids,
    Disk,
    Output,
    Interrupted,
    NotFound,
    NotExecutable,
    CouldNotStart,
}

impl Reason {
    pub const ALL: [Self; 11] = [
        Self::Exited,
        Self::Signaled,
        Self::Timeout,
        Self::Memory,
        Self::Pids,
        Self::Disk,
        Self::Output,
        Self::Interrupted,
        Self::NotFound,
        Self::NotExecutable,
        Self::CouldNotStart,
    ];

    /// Returns the name of the reason in results. The names are stable: scripts match on them.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Signaled => "signaled",
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Output => "output",
            Self::Interrupted => "interrupted",
            Self::NotFound => "not_found",
            Self::NotExecutable => "not_executable",
            Self::CouldNotStart => "could_not_start",
        }
    }

    /// Returns whether the run ended because it exceeded a limit.
    pub const fn is_limit(self) -> bool {
        match self {
            Self::Timeout | Self::Memory | Self::Pids | Self::Disk | Self::Output => true,
            Self::Exited
            | Self::Signaled
            | Self::Interrupted
            | Self::NotFound
            | Self::NotExecutable
            | Self::CouldNotStart => false,
        }
    }

    /// Returns a description of the reason for users.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Exited => "the program exited",
            Self::Signaled => "the program was killed by a signal",
            Self::Timeout => "the program ran longer than its timeout and was killed",
            Self::Memory => "the box used more memory than its limit and was killed",
            Self::Pids => "the box started more processes than its limit and was killed",
            Self::Disk => "the box wrote more to disk than its limit and was killed",
            Self::Output => "the program wrote more output than its limit and was killed",
            Self::Interrupted => "the run was interrupted",
            Self::NotFound => "the program was not found in the box",
            Self::NotExecutable => "the program cannot be executed in the box",
            Self::CouldNotStart => "the box could not be started",
        }
    }

    /// Returns the exit code of `belljar run` if the exit status of the program does not matter.
    const fn fixed_exit_code(self) -> Option<u8> {
        match self {
            Self::Exited | Self::Signaled | Self::Interrupted => None,
            Self::Timeout => Some(124),
            Self::CouldNotStart => Some(COULD_NOT_START),
            Self::NotExecutable => Some(126),
            Self::NotFound => Some(127),
            // The exit code that a shell shows for SIGKILL, which enforces a limit.
            Self::Memory | Self::Pids | Self::Disk | Self::Output => Some(137),
        }
    }
}

const COULD_NOT_START: u8 = 125;
const SIGINT: i32 = 2;

impl RunResult {
    /// Returns the exit code of `belljar run`: the program's exit status, or a code for the reason.
    pub fn exit_code(&self) -> u8 {
        self.reason.exit_code(self.exit, self.signal)
    }

    /// Describes how a run of a named box ended, with the exit status or the signal of its program.
    pub fn end_of_box(&self) -> String {
        let sentence = self.reason.sentence();
        match (self.reason, self.exit, self.signal) {
            (Reason::Exited, Some(exit), _) => format!("{sentence} with status {exit}"),
            (Reason::Signaled, _, Some(signal)) => {
                format!("the program was killed by signal {signal}")
            }
            // A named box has no terminal whose Ctrl-C could interrupt it.
            (Reason::Interrupted, ..) => "the box was stopped".to_owned(),
            _ => sentence.to_owned(),
        }
    }
}

impl Reason {
    /// Returns the exit code for this reason, the program's exit status and the signal that killed it.
    pub fn exit_code(self, exit: Option<i32>, signal: Option<i32>) -> u8 {
        if let Some(code) = self.fixed_exit_code() {
            return code;
        }
        match (exit, signal) {
            (_, Some(signal)) => of_signal(signal),
            (Some(exit), None) => of_exit(exit),
            (None, None) if self == Self::Interrupted => of_signal(SIGINT),
            // The end of the program was not observed, so the exit code must not be 0.
            (None, None) => COULD_NOT_START,
        }
    }
}

/// Returns the low eight bits of an exit status, as wait(2) does.
fn of_exit(exit: i32) -> u8 {
    let [low, ..] = exit.to_le_bytes();
    low
}

/// Returns 128 plus the number of a signal, as shells do.
fn of_signal(signal: i32) -> u8 {
    u8::try_from(signal).ok().and_then(|signal| signal.checked_add(128)).unwrap_or(u8::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn ended(reason: Reason, exit: Option<i32>, signal: Option<i32>) -> RunResult {
        RunResult {
            run: RunId::new(1_700_000_000_000, 7),
            name: Some("build".parse().unwrap()),
            exit,
            signal,
            reason,
            setup_micros: 5_200,
            wall_micros: 1_000_000,
            cpu_micros: CpuTime { user: 1, system: 2 },
            peak_memory_bytes: Some(4096),
            stdin_bytes: 0,
            output_bytes: OutputBytes { stdout: 3, stderr: 4 },
            changed_files: None,
            layers: vec![
                LayerState {
                    layer: Layer::Seccomp,
                    state: InForce::InForce { detail: "x86-64".into() },
                },
                LayerState { layer: Layer::Landlock, state: InForce::Weakened },
                LayerState {
                    layer: Layer::Cgroup,
                    state: InForce::StandIn { mechanism: "watcher".into() },
                },
            ],
            limits: Limits::default(),
        }
    }

    #[track_caller]
    fn check(reason: Reason, exit: Option<i32>, signal: Option<i32>, expect: u8) {
        assert_eq!(
            ended(reason, exit, signal).exit_code(),
            expect,
            "{reason:?} {exit:?} {signal:?}"
        );
    }

    #[test]
    fn every_end_reason_has_its_documented_exit_code() {
        check(Reason::Exited, Some(0), None, 0);
        check(Reason::Exited, Some(3), None, 3);
        check(Reason::Exited, Some(255), None, 255);
        check(Reason::Exited, Some(256 + 7), None, 7);
        check(Reason::Signaled, None, Some(15), 143);
        check(Reason::Signaled, None, Some(9), 137);
        check(Reason::Signaled, None, Some(64), 192);
        check(Reason::Signaled, None, Some(1000), 255);
        check(Reason::Timeout, None, Some(9), 124);
        check(Reason::Timeout, Some(0), None, 124);
        check(Reason::CouldNotStart, None, None, 125);
        check(Reason::NotExecutable, None, None, 126);
        check(Reason::NotFound, None, None, 127);
        for limit in [Reason::Memory, Reason::Pids, Reason::Disk, Reason::Output] {
            check(limit, None, Some(9), 137);
            check(limit, Some(0), None, 137);
        }
        check(Reason::Interrupted, None, Some(15), 143);
        check(Reason::Interrupted, None, None, 130);
    }

    #[test]
    fn exit_code_of_a_run_with_unknown_exit_status_is_not_zero() {
        for reason in Reason::ALL {
            assert_ne!(ended(reason, None, None).exit_code(), 0, "{reason:?}");
        }
    }

    #[test]
    fn end_of_box_names_the_exit_status_and_the_signal() {
        let end = |reason, exit, signal| ended(reason, exit, signal).end_of_box();
        assert_eq!(end(Reason::Exited, Some(3), None), "the program exited with status 3");
        assert_eq!(end(Reason::Signaled, None, Some(9)), "the program was killed by signal 9");
        assert_eq!(end(Reason::Interrupted, None, Some(15)), "the box was stopped");
        assert_eq!(end(Reason::Memory, None, Some(9)), Reason::Memory.sentence());
    }

    #[test]
    fn every_end_reason_has_the_same_name_in_json_and_a_description() {
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{}\"", reason.name()));
            assert!(!reason.sentence().is_empty() && !reason.sentence().ends_with('.'));
        }
    }

    #[test]
    fn run_result_survives_a_round_trip_with_its_documented_json_fields() {
        let result = ended(Reason::Memory, None, Some(9));
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!(json["reason"], "memory");
        assert_eq!(json["cpu_micros"]["system"], 2);
        assert_eq!(
            json["layers"][0],
            serde_json::json!({"layer": "seccomp", "state": "in_force", "detail": "x86-64"})
        );
        assert_eq!(
            json["layers"][1],
            serde_json::json!({"layer": "landlock", "state": "weakened"})
        );
        assert_eq!(json["layers"][2]["mechanism"], "watcher");
        assert_eq!(serde_json::from_value::<RunResult>(json).unwrap(), result);
    }
}
