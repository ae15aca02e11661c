//! The 20 repositories: a bug, a failing test that the model sees, and a verification that it does not see.

mod python;
mod scripts;

use super::protocol::Protocol;

/// A small repository with a bug.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) protocol: Protocol,
    /// The files with their contents. `{filler}` stands for thousands of lines.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// The command line of the repository's tests, which its README names.
    pub(super) tests: &'static str,
    /// A command line that tests other inputs, and that the model never sees.
    pub(super) hidden: &'static str,
    /// How the agent finds the file to change.
    pub(super) find: Find,
    /// How the agent changes the file.
    pub(super) by: By,
    /// Wrong texts and their replacements. A replacement can be wrong, too. `{value}` is looked up.
    pub(super) repairs: &'static [(&'static str, &'static str)],
    pub(super) look_up: Option<LookUp>,
    /// A call that fails, and from which the agent has to recover.
    pub(super) mistake: Option<Mistake>,
    /// The files that the repair changes, sorted.
    pub(super) changed: &'static [&'static str],
}

/// A tool that finds files.
#[derive(Clone, Copy, Debug)]
pub(super) enum Find {
    Grep,
    Glob,
    Shell,
}

/// A tool that changes files.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    Edit,
    Write,
    Shell,
    Code,
}

/// A source of a value that is not in the repository.
#[derive(Clone, Copy, Debug)]
pub(super) enum LookUp {
    /// A page with this text. The value follows the colon.
    Page(&'static str),
    /// A program whose result is the value.
    Code(&'static str),
}

/// A call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    UnknownTool,
    WrongArguments,
    FailingCommand,
    DeniedCommand,
    PathOutside,
    OtherHost,
    WrongOldText,
    ChangedTest,
    ThrowingCode,
}

impl Mistake {
    /// Returns a part of the result.
    pub(super) const fn result(self) -> &'static str {
        match self {
            Self::UnknownTool => "error: there is no tool `run_tests`; the tools are shell, read",
            Self::WrongArguments => "error: the arguments are not valid",
            Self::FailingCommand => "exit status 2\n",
            Self::DeniedCommand => "error: the call is denied by the rule `Bash(git push:*)`",
            Self::PathOutside => "error: cannot open /workspace/../escaped.txt",
            Self::OtherHost => "error: ",
            Self::WrongOldText => "error: the file does not contain `old`",
            Self::ChangedTest => "error: the call is denied by the rule `Edit(tests/**)`",
            Self::ThrowingCode => "error: ",
        }
    }

    /// Returns whether the agent makes the mistake when it could change the file, and not at the start.
    pub(super) const fn is_made_at_a_change(self) -> bool {
        matches!(self, Self::WrongOldText | Self::ChangedTest | Self::ThrowingCode)
    }
}

impl Case {
    /// Returns all cases.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        python::CASES.iter().chain(&scripts::CASES)
    }

    /// Returns the files of the repository with their contents.
    pub(super) fn repository(&self) -> Vec<(String, String)> {
        let filler = || (1..2500).map(|number| format!("# Line {number}.\n")).collect::<String>();
        let readme = format!("# {}\n\nRun the tests with `{}`.\n", self.name, self.tests);
        let file = |(path, content): &(&str, &str)| {
            let content = match content.contains("{filler}") {
                true => content.replace("{filler}", &filler()),
                false => (*content).to_owned(),
            };
            ((*path).to_owned(), content)
        };
        let files = self.files.iter().map(file);
        files.chain([("README.md".to_owned(), readme)]).collect()
    }
}
