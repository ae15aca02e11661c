//! The first `belljar.toml` of a user, derived from the files of a project.
//!
//! The files of a project can come from a stranger. So only the standard registries of a language and
//! repositories on well-known forges become rules. A host that only a file of the project names becomes a
//! comment, and a person decides about it.
//!
//! [`ProjectFacts::read`] reads the directory. [`render`] is pure.

mod lock_files;
mod remotes;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use belljar_model::agent::AgentName;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;

pub use remotes::Remote;

/// The maximum size of a file that is read; the rest of a longer file is ignored, and the result says so.
const MAX_FILE: u64 = 8 << 20;
/// The maximum number of hosts that become comments.
const MAX_HOSTS: usize = 50;

/// A language or build tool that a project uses.
struct Language {
    /// Files in the top directory of a project that show the use of the language.
    files: &'static [&'static str],
    /// Files that name the hosts of dependencies.
    lock_files: &'static [&'static str],
    /// The entries of `allow` for the registries of the language: presets, or rules that only read.
    allow: &'static [&'static str],
    /// The hosts of these entries, which need no comment.
    hosts: &'static [&'static str],
    /// A command that people run first in such a project.
    command: &'static str,
}

const LANGUAGES: [Language; 6] = [
    Language {
        files: &["Cargo.toml"],
        lock_files: &["Cargo.lock"],
        allow: &["crates"],
        hosts: &["index.crates.io", "static.crates.io", "crates.io"],
        command: "cargo test",
    },
    Language {
        files: &["package.json"],
        lock_files: &["package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml"],
        allow: &["npm"],
        hosts: &["registry.npmjs.org", "registry.yarnpkg.com"],
        command: "npm test",
    },
    Language {
        files: &["pyproject.toml", "requirements.txt", "setup.py", "Pipfile"],
        lock_files: &["uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "requirements.txt"],
        allow: &["pypi"],
        hosts: &["pypi.org", "files.pythonhosted.org"],
        command: "python3 -m pytest",
    },
    Language {
        files: &["go.mod"],
        lock_files: &["go.sum"],
        allow: &["GET,HEAD proxy.golang.org", "GET,HEAD sum.golang.org"],
        hosts: &["proxy.golang.org", "sum.golang.org"],
        command: "go test ./...",
    },
    Language {
        files: &["Gemfile"],
        lock_files: &["Gemfile.lock"],
        allow: &["GET,HEAD rubygems.org", "GET,HEAD index.rubygems.org"],
        hosts: &["rubygems.org", "index.rubygems.org"],
        command: "bundle exec rake",
    },
    Language { files: &["Makefile"], lock_files: &[], allow: &[], hosts: &[], command: "make" },
];

/// What the files of a project say about the network that its programs need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ProjectFacts {
    /// The entries of `allow` for registries, each with the file that shows the use.
    pub registries: Vec<Found>,
    /// The remotes of the repository that are on a well-known forge.
    pub remotes: Vec<Remote>,
    /// Other hosts that files of the project name, each with its file. They are not allowed.
    pub other_hosts: Vec<Found>,
    /// Files that are too long and were read in part.
    pub partly_read: Vec<String>,
    /// A command that people run first in such a project.
    pub command: Option<String>,
}

/// A value that was found in a file of the project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    pub what: String,
    pub file: String,
}

/// The answers of the user to the questions of `belljar init`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectChoice {
    /// The name of the template.
    pub name: String,
    /// Whether the registries and remotes that were found are allowed.
    pub has_network: bool,
    /// Whether programs may push to the first remote on GitHub.
    pub may_push: bool,
    pub agent: Option<AgentName>,
}

impl ProjectFacts {
    /// Reads the top directory of a project. Links are not followed.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut facts = Self::default();
        let mut known = Vec::new();
        for language in &LANGUAGES {
            let is_present = |name: &&&str| is_file(&dir.join(name));
            let named = language.files.iter().chain(language.lock_files).find(is_present);
            let Some(file) = named else { continue };
            let found = |what: &&str| Found { what: (*what).to_owned(), file: (*file).to_owned() };
            facts.registries.extend(language.allow.iter().map(found));
            facts.command.get_or_insert_with(|| language.command.to_owned());
            known.extend(language.hosts);
        }
        for name in LANGUAGES.iter().flat_map(|language| language.lock_files) {
            let Some(text) = facts.read_file(&dir.join(name), name)? else { continue };
            for host in lock_files::hosts(&text) {
                let is_new = facts.other_hosts.iter().all(|other| other.what != host);
                if is_new && !known.contains(&host.as_str()) {
                    facts.other_hosts.push(Found { what: host, file: (*name).to_owned() });
                }
            }
        }
        facts.other_hosts.truncate(MAX_HOSTS);
        let git = dir.join(".git");
        let is_directory = git.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        if is_directory && let Some(text) = facts.read_file(&git.join("config"), ".git/config")? {
            facts.remotes = remotes::parse(&text);
        }
        Ok(facts)
    }

    /// Reads a file, or returns `None` if the file is missing or not a regular file.
    fn read_file(&mut self, path: &Path, name: &str) -> io::Result<Option<String>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        if metadata.len() > MAX_FILE {
            self.partly_read.push(name.to_owned());
        }
        let mut text = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut text)?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Returns the first remote on GitHub, for whose pushes Belljar has a secret.
    pub fn github(&self) -> Option<&Remote> {
        self.remotes.iter().find(|remote| remote.host == "github.com")
    }

    /// Returns the name for a template: the name of the directory, in letters that a template can have.
    pub fn template_name(dir: &Path) -> String {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let name: String = name.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
        let name: String = name.trim_matches('-').chars().take(40).collect();
        match name.trim_end_matches('-') {
            "" | "default" => "project".to_owned(),
            name => name.to_owned(),
        }
    }
}

/// Returns the usual commands of the languages that a project uses, each with the file that shows the use.
/// Links are not followed, and no file is read.
pub fn commands(dir: &Path) -> Vec<Found> {
    let of = |language: &Language| {
        let mut files = language.files.iter().chain(language.lock_files);
        let file = files.find(|name| is_file(&dir.join(name)))?;
        Some(Found { what: language.command.to_owned(), file: (*file).to_owned() })
    };
    LANGUAGES.iter().filter_map(of).collect()
}

fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Returns the text of a `belljar.toml` for a project.
pub fn render(facts: &ProjectFacts, choice: &ProjectChoice) -> String {
    let ProjectChoice { name, has_network, may_push, agent } = choice;
    let mut text = format!(
        "# Templates of boxes, written by `belljar init`. Change them as you like.\n\
         # `belljar template show {name}` prints all values with their defaults.\n\
         # `belljar net explain URL --template {name}` says whether a request is allowed, and why.\n\n"
    );
    text.push_str(&section(
        name,
        "Commands of the project: `belljar run --template NAME -- COMMAND`.",
    ));
    if *has_network {
        text.push_str(&network(facts, *may_push));
    } else {
        text.push_str("net = \"none\"\n");
    }
    if let Some(agent) = agent {
        let about = format!(
            "The agent {agent}: `belljar up NAME --agent {agent} --template {name}-agent --repo .`\n\
             # Its own network rules and its key come with `--agent`."
        );
        text.push('\n');
        text.push_str(&section(&format!("{name}-agent"), &about));
        text.push_str("memory = \"8GiB\"\npids = 4096\ndisk = \"16GiB\"\n");
        // An agent needs its own rules, so its box always has a network.
        match has_network {
            true => text.push_str(&network(facts, *may_push)),
            false => text.push_str("net = \"restricted\"\n"),
        }
    }
    text
}

fn section(name: &str, about: &str) -> String {
    format!("# {about}\n[template.{name}]\n")
}

/// Returns the keys of a template for the network.
fn network(facts: &ProjectFacts, may_push: bool) -> String {
    let mut lines = Vec::new();
    for Found { what, file } in &facts.registries {
        lines.push(format!("    \"{what}\", # {file}\n"));
    }
    for remote in &facts.remotes {
        lines.push(format!("    {}, # fetch from {}\n", remote.fetch_rule(), remote.name));
    }
    let push = facts.github().filter(|_| may_push);
    if let Some(remote) = push {
        lines.push(format!("    {}, # push to {}\n", remote.push_rule(), remote.name));
    }
    let mut text = "net = \"restricted\"\nallow = [\n".to_owned();
    text.extend(lines);
    text.push_str("]\n");
    if push.is_some() {
        text.push_str("secrets = [\"github\"] # `belljar secret set github` stores the token\n");
    }
    if !facts.other_hosts.is_empty() {
        text.push_str(
            "# These hosts are named by files of the project. Add those that you trust:\n",
        );
        let comment = |Found { what, file }: &Found| format!("#   \"GET,HEAD {what}\", # {file}\n");
        text.extend(facts.other_hosts.iter().map(comment));
    }
    text
}

#[cfg(test)]
mod tests;
