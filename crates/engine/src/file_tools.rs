//! Tools of models that read and change files of a session. Each runs as a small script inside a box, so
//! that no process of the host opens a path that a model chose.

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
    /// The script that makes this call. It gets no services and the usual time limit.
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
