//! The confinement layers of a box and the requirements that a template can set for them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One isolation layer of a box. Every layer is on unless the operator weakens it by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    Namespaces,
    TimeNamespace,
    ReadOnlySystem,
    ProcMask,
    Seccomp,
    Landlock,
    Capabilities,
    NoNewPrivs,
    NestedUserns,
    Cgroup,
    Rlimits,
    SelfTest,
}

/// The error for a text that is not the name of an isolation layer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown layer; the layers are {}", names().join(", "))]
pub struct LayerError;

impl Layer {
    /// All isolation layers, in the order in which reports show them.
    pub const ALL: [Self; 12] = [
        Self::Namespaces,
        Self::TimeNamespace,
        Self::ReadOnlySystem,
        Self::ProcMask,
        Self::Seccomp,
        Self::Landlock,
        Self::Capabilities,
        Self::NoNewPrivs,
        Self::NestedUserns,
        Self::Cgroup,
        Self::Rlimits,
        Self::SelfTest,
    ];

    /// Returns the name of the layer that `--weaken`, `belljar.toml` and results use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::TimeNamespace => "time-namespace",
            Self::ReadOnlySystem => "read-only-system",
            Self::ProcMask => "proc-mask",
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::Capabilities => "capabilities",
            Self::NoNewPrivs => "no-new-privs",
            Self::NestedUserns => "nested-userns",
            Self::Cgroup => "cgroup",
            Self::Rlimits => "rlimits",
            Self::SelfTest => "self-test",
        }
    }

    /// Returns whether the operator can turn the layer off. The other layers are essential to every
    /// box.
    pub const fn weakenable(self) -> bool {
        match self {
            Self::TimeNamespace
            | Self::ProcMask
            | Self::Seccomp
            | Self::Landlock
            | Self::NestedUserns
            | Self::Cgroup
            | Self::SelfTest => true,
            Self::Namespaces
            | Self::ReadOnlySystem
            | Self::Capabilities
            | Self::NoNewPrivs
            | Self::Rlimits => false,
        }
    }

    /// Returns a one-line description of the isolation layer.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Namespaces => {
                "own view of users, mounts, processes, network, IPC, host name and cgroups"
            }
            Self::TimeNamespace => "own boot clock, so that the host's uptime stays unknown",
            Self::ReadOnlySystem => {
                "the programs and libraries of the host can be read and never written"
            }
            Self::ProcMask => "/proc shows the box's own processes and nothing of the host",
            Self::Seccomp => {
                "system calls that no ordinary program needs are refused by the kernel"
            }
            Self::Landlock => "a second, independent check on files and signals",
            Self::Capabilities => "no process of the box holds any root power",
            Self::NoNewPrivs => "no program started inside can gain rights, setuid or not",
            Self::NestedUserns => "no further user namespaces, the usual way to reach kernel bugs",
            Self::Cgroup => "memory, CPU and process limits for the box as a whole, by the kernel",
            Self::Rlimits => "limits per process: open files, core dumps, locked memory",
            Self::SelfTest => "forbidden acts are tried inside before the program starts",
        }
    }
}

fn names() -> [&'static str; 12] {
    Layer::ALL.map(Layer::name)
}

impl FromStr for Layer {
    type Err = LayerError;

    fn from_str(text: &str) -> Result<Self, LayerError> {
        Self::ALL.into_iter().find(|layer| layer.name() == text).ok_or(LayerError)
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A requirement of a box; without it the box does not start, even if a substitute exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requirement {
    /// The limits must be enforced by a cgroup instead of rlimits and a watcher.
    Cgroup,
}

/// The reason why a text is not the name of a requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown requirement; the only one is `cgroup`")]
pub struct RequirementError;

impl Requirement {
    pub const ALL: [Self; 1] = [Self::Cgroup];

    /// Returns the name of the requirement that `--require` and `belljar.toml` use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
        }
    }

    /// Returns the isolation layer that must be in force without a substitute.
    pub const fn layer(self) -> Layer {
        match self {
            Self::Cgroup => Layer::Cgroup,
        }
    }
}

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Self, RequirementError> {
        Self::ALL.into_iter().find(|known| known.name() == text).ok_or(RequirementError)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_has_the_same_name_in_text_and_in_json() {
        for layer in Layer::ALL {
            assert_eq!(layer.to_string().parse(), Ok(layer));
            assert_eq!(serde_json::to_string(&layer).unwrap(), format!("\"{layer}\""));
            assert!(!layer.doc().is_empty() && !layer.doc().contains('\n'));
        }
        for text in ["", "Seccomp", "seccomp ", "all", "*"] {
            assert_eq!(text.parse::<Layer>(), Err(LayerError));
        }
        for requirement in Requirement::ALL {
            assert_eq!(requirement.to_string().parse(), Ok(requirement));
            assert_eq!(serde_json::to_string(&requirement).unwrap(), format!("\"{requirement}\""));
        }
    }

    #[test]
    fn essential_isolation_layers_cannot_be_weakened() {
        let firm: Vec<_> =
            Layer::ALL.iter().filter(|layer| !layer.weakenable()).map(|l| l.name()).collect();
        assert_eq!(
            firm,
            ["namespaces", "read-only-system", "capabilities", "no-new-privs", "rlimits"]
        );
    }
}
