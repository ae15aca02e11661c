//! Tools for models that read and change the files of a session.
//!
//! Each tool runs as a small script inside a box, so that no process on the host opens a path that a model
//! chose.

use belljar_code::tools;

use crate::programs::{Program, Work};

pub use belljar_code::tools::{EditFile, Glob, Grep, ReadFile, WriteFile};

/// One call of a file tool, with its arguments.
#[derive(Debug)]
pub enum FileTool {
    Read(ReadFile),
    Write(WriteFile),
    Edit(EditFile),
    Glob(Glob),
    Grep(Grep),
}

impl FileTool {
    /// Returns the script that performs this call, without apis and with the default time limit.
    pub fn work(&self) -> Work {
        let script = match self {
            Self::Read(arguments) => tools::read_file(arguments),
            Self::Write(arguments) => tools::write_file(arguments),
            Self::Edit(arguments) => tools::edit_file(arguments),
            Self::Glob(arguments) => tools::glob(arguments),
            Self::Grep(arguments) => tools::grep(arguments),
        };
        Work { program: Program::Tool(script), apis: None, timeout: None }
    }
}
