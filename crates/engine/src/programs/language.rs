//! The languages of programs, and the detection of those that are installed on this machine.

use std::path::Path;
use std::str::FromStr;

use belljar_wire::{Dialect, Program};

/// The language of a program in code mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    TypeScript,
    JavaScript,
    Python,
    Shell,
    Deno,
    Node,
}

/// The directories in which boxes find the interpreters of the host.
const PROGRAM_DIRS: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin"];

impl Language {
    pub const ALL: [Self; 6] =
        [Self::TypeScript, Self::JavaScript, Self::Python, Self::Shell, Self::Deno, Self::Node];

    /// Returns the short name of the language, as `--lang` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TypeScript => "ts",
            Self::JavaScript => "js",
            Self::Python => "py",
            Self::Shell => "sh",
            Self::Deno => "deno",
            Self::Node => "node",
        }
    }

    /// Returns a description of the language and its interpreter.
    pub const fn about(self) -> &'static str {
        match self {
            Self::TypeScript => "TypeScript in the built-in engine",
            Self::JavaScript => "JavaScript in the built-in engine",
            Self::Python => "Python 3 of this machine",
            Self::Shell => "bash, or sh",
            Self::Deno => "Deno of this machine",
            Self::Node => "Node of this machine",
        }
    }

    /// Returns the dialect if the built-in engine runs this language, or `None` if an interpreter of the
    /// host runs it.
    pub const fn dialect(self) -> Option<Dialect> {
        match self {
            Self::TypeScript => Some(Dialect::Ts),
            Self::JavaScript => Some(Dialect::Js),
            Self::Python | Self::Shell | Self::Deno | Self::Node => None,
        }
    }

    /// Returns whether programs in this language can run on this machine.
    pub fn is_installed(self) -> bool {
        self.dialect().is_some() || self.interpreters().iter().any(|name| is_executable(name))
    }

    /// Returns the names of all languages that can run on this machine.
    pub fn installed_names() -> Vec<&'static str> {
        Self::ALL.into_iter().filter(|language| language.is_installed()).map(Self::name).collect()
    }

    /// Returns the language that the extension of a file name indicates.
    pub fn of_file(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()? {
            "ts" | "mts" | "cts" => Self::TypeScript,
            "js" | "mjs" | "cjs" => Self::JavaScript,
            "py" => Self::Python,
            "sh" | "bash" => Self::Shell,
            _ => return None,
        })
    }

    /// Returns the names of the interpreters that can run this language. The built-in engine needs none.
    const fn interpreters(self) -> &'static [&'static str] {
        match self {
            Self::TypeScript | Self::JavaScript => &[],
            Self::Python => &["python3"],
            Self::Shell => &["bash", "sh"],
            Self::Deno => &["deno"],
            Self::Node => &["node"],
        }
    }

    /// Returns the command that runs this code with an interpreter, or `None` if the built-in engine runs
    /// it.
    pub(super) fn program(self, code: String, input: Option<String>) -> Option<Program> {
        let found = self.interpreters().iter().copied().find(|name| is_executable(name));
        let command = found.or_else(|| self.interpreters().first().copied())?;
        let (file, options): (&str, &[&str]) = match self {
            Self::Python => ("/tmp/main.py", &["-u"]),
            Self::Shell => ("/tmp/main.sh", &[]),
            Self::Deno => {
                ("/tmp/main.ts", &["run", "--allow-all", "--no-prompt", "--quiet", "--no-lock"])
            }
            Self::Node => ("/tmp/main.mjs", &[]),
            Self::TypeScript | Self::JavaScript => return None,
        };
        let argv = std::iter::once(command).chain(options.iter().copied()).chain([file]);
        let env = [
            ("DENO_DIR", "/tmp/.deno"),
            ("DENO_NO_UPDATE_CHECK", "1"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
        ];
        Some(Program {
            argv: argv.map(str::to_owned).collect(),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            files: vec![(file.to_owned(), code)],
            workdir: None,
            stdin: input,
        })
    }
}

impl FromStr for Language {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "ts" | "typescript" => Self::TypeScript,
            "js" | "javascript" => Self::JavaScript,
            "py" | "python" | "python3" => Self::Python,
            "sh" | "bash" | "shell" => Self::Shell,
            "deno" => Self::Deno,
            "node" => Self::Node,
            _ => {
                let known = Self::ALL.map(Self::name).join(", ");
                return Err(format!("unknown language {text:?}; the known languages are {known}"));
            }
        })
    }
}

/// Returns whether one of the program directories has an executable file of this name.
fn is_executable(name: &str) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    PROGRAM_DIRS.iter().any(|dir| {
        let meta = Path::new(dir).join(name).metadata();
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}
