//! The languages of programs, and which of them this machine has.

use std::path::Path;
use std::str::FromStr;

use belljar_wire::{Dialect, Program};

/// What a program is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    TypeScript,
    JavaScript,
    Python,
    Shell,
    Deno,
    Node,
}

/// The directories of programs that every box sees.
const PLACES: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin"];

impl Language {
    pub const ALL: [Self; 6] =
        [Self::TypeScript, Self::JavaScript, Self::Python, Self::Shell, Self::Deno, Self::Node];

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

    /// What it runs in, for a person or a model.
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

    /// The dialect, if the engine runs it.
    pub const fn dialect(self) -> Option<Dialect> {
        match self {
            Self::TypeScript => Some(Dialect::Ts),
            Self::JavaScript => Some(Dialect::Js),
            Self::Python | Self::Shell | Self::Deno | Self::Node => None,
        }
    }

    /// Whether boxes have what it needs.
    pub fn is_here(self) -> bool {
        self.dialect().is_some() || self.programs().iter().any(|name| is_installed(name))
    }

    /// The names of those that are here.
    pub fn here() -> Vec<&'static str> {
        Self::ALL.into_iter().filter(|language| language.is_here()).map(Self::name).collect()
    }

    /// What to guess from a file's name.
    pub fn of_file(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()? {
            "ts" | "mts" | "cts" => Self::TypeScript,
            "js" | "mjs" | "cjs" => Self::JavaScript,
            "py" => Self::Python,
            "sh" | "bash" => Self::Shell,
            _ => return None,
        })
    }

    const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::TypeScript | Self::JavaScript => &[],
            Self::Python => &["python3"],
            Self::Shell => &["bash", "sh"],
            Self::Deno => &["deno"],
            Self::Node => &["node"],
        }
    }

    /// The program that runs this code; none for the engine.
    pub(super) fn program(self, code: String, input: Option<String>) -> Option<Program> {
        let found = self.programs().iter().copied().find(|name| is_installed(name));
        let command = found.or_else(|| self.programs().first().copied())?;
        let (file, before): (&str, &[&str]) = match self {
            Self::Python => ("/tmp/main.py", &["-u"]),
            Self::Shell => ("/tmp/main.sh", &[]),
            Self::Deno => {
                ("/tmp/main.ts", &["run", "--allow-all", "--no-prompt", "--quiet", "--no-lock"])
            }
            Self::Node => ("/tmp/main.mjs", &[]),
            Self::TypeScript | Self::JavaScript => return None,
        };
        let words = std::iter::once(command).chain(before.iter().copied()).chain([file]);
        let env = [
            ("DENO_DIR", "/tmp/.deno"),
            ("DENO_NO_UPDATE_CHECK", "1"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
        ];
        Some(Program {
            argv: words.map(str::to_owned).collect(),
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
                return Err(format!("there is no language {text:?}; there are {known}"));
            }
        })
    }
}

fn is_installed(name: &str) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    PLACES.iter().any(|place| {
        let meta = Path::new(place).join(name).metadata();
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}
