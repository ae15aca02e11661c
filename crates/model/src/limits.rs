//! The resource limits of a box.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cpus::Cpus;
use crate::size::ByteSize;
use crate::time;

/// The resource limits of a box. All are enforced, and only the timeout can be turned off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub memory: ByteSize,
    pub cpus: Cpus,
    /// The maximum number of processes and threads.
    pub pids: u32,
    /// The maximum number of bytes that the box can write to its temporary directories and its
    /// overlay.
    pub disk: ByteSize,
    /// The maximum number of open files per process.
    pub files: u64,
    /// The maximum number of bytes of standard output and standard error together.
    pub output: ByteSize,
    #[serde(with = "time::as_text")]
    pub timeout: Option<Duration>,
}

/// A limit that is too small for any program to run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("the memory limit must be at least {MIN_MEMORY}, or no program can start")]
    Memory,
    #[error("the process limit must be at least {MIN_PIDS}; Belljar itself needs one process")]
    Pids,
    #[error("the disk limit must be at least {MIN_DISK}")]
    Disk,
    #[error("the limit of open files must be at least {MIN_FILES}, or no program can start")]
    Files,
}

const MIN_MEMORY: ByteSize = ByteSize::mib(16);
const MIN_PIDS: u32 = 2;
const MIN_DISK: ByteSize = ByteSize::mib(1);
const MIN_FILES: u64 = 16;

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: ByteSize::mib(2048),
            cpus: Cpus::whole(2),
            pids: 512,
            disk: ByteSize::mib(2048),
            files: 4096,
            output: ByteSize::mib(256),
            timeout: Some(Duration::from_secs(600)),
        }
    }
}

impl Limits {
    /// Returns an error if a limit is too small for any program to start.
    pub fn check(&self) -> Result<(), LimitError> {
        // Destructured without `..`, so that a new limit cannot be forgotten here.
        let Self { memory, cpus: _, pids, disk, files, output: _, timeout: _ } = self;
        if *memory < MIN_MEMORY {
            return Err(LimitError::Memory);
        }
        if *pids < MIN_PIDS {
            return Err(LimitError::Pids);
        }
        if *disk < MIN_DISK {
            return Err(LimitError::Disk);
        }
        if *files < MIN_FILES {
            return Err(LimitError::Files);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_limits_equal_the_documented_values() {
        let json = serde_json::to_string(&Limits::default()).unwrap();
        assert_eq!(
            json,
            r#"{"memory":"2GiB","cpus":"2","pids":512,"disk":"2GiB","files":4096,"output":"256MiB","timeout":"10m"}"#
        );
        assert_eq!(serde_json::from_str::<Limits>(&json).unwrap(), Limits::default());
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn limits_too_small_for_any_program_are_refused() {
        let at = Limits::default;
        assert_eq!(Limits { memory: ByteSize::mib(15), ..at() }.check(), Err(LimitError::Memory));
        assert_eq!(Limits { pids: 1, ..at() }.check(), Err(LimitError::Pids));
        let small = ByteSize::new(1 << 19).unwrap();
        assert_eq!(Limits { disk: small, ..at() }.check(), Err(LimitError::Disk));
        assert_eq!(Limits { files: 15, ..at() }.check(), Err(LimitError::Files));
        let floor = Limits {
            memory: ByteSize::mib(16),
            pids: 2,
            disk: ByteSize::mib(1),
            files: 16,
            output: ByteSize::new(1).unwrap(),
            ..at()
        };
        assert_eq!(floor.check(), Ok(()));
    }
}
