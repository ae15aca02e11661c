//! Searches the logs of the test suite for secrets. All processes of the tests write logs at level
//! `trace`, and no log may contain a secret of a test in any encoding.

mod encodings;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::shell::target_dir;
use encodings::{Search, encodings};

/// The environment variable with the directory for logs of tests; see `Lab` in `crates/testkit`.
const LOGS_VARIABLE: &str = "BELLJAR_TEST_LOGS";

/// The environment variable with the file to which tests append the secrets that they create or pass to
/// `belljar secret set`, one per line; see `crates/testkit/src/planted.rs`.
const SECRETS_VARIABLE: &str = "BELLJAR_TEST_SECRETS";

/// The minimum number of secrets in the file. Fewer secrets mean that the tests do not append them.
const MIN_SECRETS: usize = 12;

/// The minimum length of a secret that is searched for. A shorter text may be an ordinary word.
const MIN_SECRET_LENGTH: usize = 12;

/// Secrets that tests do not append to the file, each with the test file that contains it.
const LISTED_SECRETS: &[(&str, &str)] = &[
    ("tok-4f1dB7c0ffee4f1dB7c0ffee", "crates/belljar/tests/e2e/net_cli.rs"),
    ("canary-4f1dB7-value-of-a-secret", "crates/belljar/tests/e2e/secret.rs"),
    ("real-secret/9f+4k=Zq~0123456789", "crates/belljar/tests/e2e/logs.rs"),
    ("shop_live_4f9d2c7b1a8e6035d4c2", "crates/testkit/src/shop.rs"),
    ("ghp_thisIsTheRealValue0123456789abcdefAB", "crates/belljar/tests/e2e/attacks.rs"),
    ("value-of-a-variable/7d+2=1c0e5b", "crates/belljar/tests/e2e/logs.rs"),
    ("ghs_aTokenThatTheServerMadeForThisSession0", "crates/belljar/tests/e2e/attacks/secrets.rs"),
];

/// Roles whose logs must have at least [`MIN_LINES`] lines, so that the search has something to check.
const ROLES: &[&str] = &["command", "supervisor", "broker", "screen"];
const MIN_LINES: usize = 100;

/// The directory with the logs of tests, and the file with their secrets.
#[derive(Debug)]
pub(crate) struct Logs {
    dir: PathBuf,
    secrets: PathBuf,
}

impl Logs {
    /// Creates an empty directory for logs and an empty file for secrets.
    pub(crate) fn new() -> Result<Self> {
        let (dir, secrets) = (target_dir()?.join("test-logs"), target_dir()?.join("test-secrets"));
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        fs::write(&secrets, "").with_context(|| format!("cannot create {}", secrets.display()))?;
        Ok(Self { dir, secrets })
    }

    /// Sets the environment variables that make the tests of a command write logs and their secrets.
    pub(crate) fn record(&self, command: &mut Command) {
        command.env(LOGS_VARIABLE, &self.dir).env(SECRETS_VARIABLE, &self.secrets);
    }

    /// Fails if a log contains a secret, if there are too few log lines or secrets, or if the search
    /// does not find a known text in one of its encodings.
    pub(crate) fn search(&self) -> Result<()> {
        check_search(&self.dir)?;
        let lines = lines_of_roles(&self.dir)?;
        for role in ROLES {
            let count = lines.get(*role).copied().unwrap_or(0);
            if count < MIN_LINES {
                bail!(
                    "the logs have {count} lines of the role {role}, but at least {MIN_LINES} are expected"
                );
            }
        }
        let text =
            fs::read_to_string(&self.secrets).context("cannot read the secrets of the tests")?;
        let recorded = recorded_secrets(&text);
        if recorded.len() < MIN_SECRETS {
            let count = recorded.len();
            bail!("the tests recorded {count} secrets, but at least {MIN_SECRETS} are expected");
        }
        let secrets =
            LISTED_SECRETS.iter().map(|(secret, _)| *secret).chain(recorded.iter().copied());
        let found = find(&self.dir, &Search::new(secrets))?;
        if !found.is_empty() {
            bail!("these logs contain secrets of tests: {}", found.join(", "));
        }
        println!("secrets searched for: {}; lines by role: {lines:?}", recorded.len());
        Ok(())
    }
}

/// Returns the secrets that the tests recorded, each once. Texts with fewer than four different
/// characters are left out, because tests use them as filler.
fn recorded_secrets(text: &str) -> BTreeSet<&str> {
    let is_filler = |line: &str| line.chars().collect::<BTreeSet<char>>().len() < 4;
    text.lines().filter(|line| line.len() >= MIN_SECRET_LENGTH && !is_filler(line)).collect()
}

/// Writes a known text (a canary) to one log per encoding, and fails if the search misses one of them.
fn check_search(dir: &Path) -> Result<()> {
    let canary = format!("canary/{}+\"of this\"=search~", std::process::id());
    let mut expected = Vec::new();
    let mut logs = Vec::new();
    for (number, (name, encoded)) in encodings(&canary).into_iter().enumerate() {
        let file = format!("command-canary-{number:02}.log");
        let text = [b"value=", &encoded[..], b"\n"].concat();
        fs::write(dir.join(&file), text).context("cannot write a canary log")?;
        expected.push(format!("{file} ({name})"));
        logs.push(dir.join(file));
    }
    let mut found = find(dir, &Search::new([canary.as_str()]))?;
    found.sort();
    for log in logs {
        fs::remove_file(log).context("cannot remove a canary log")?;
    }
    if found != expected {
        bail!("the search found canaries in {found:?}, but they are in {expected:?}");
    }
    Ok(())
}

/// Returns the names of the logs that contain a secret, with the encodings of the secret.
fn find(dir: &Path, search: &Search) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (name, text) in logs(dir)? {
        let encodings: Vec<&str> = search.count(&text).into_keys().collect();
        if !encodings.is_empty() {
            found.push(format!("{name} ({})", encodings.join(", ")));
        }
    }
    Ok(found)
}

/// Counts the log lines of each role. The name of a log starts with the role.
fn lines_of_roles(dir: &Path) -> Result<BTreeMap<String, usize>> {
    let mut lines = BTreeMap::new();
    for (name, text) in logs(dir)? {
        let role = name.split('-').next().unwrap_or_default().to_owned();
        *lines.entry(role).or_insert(0) += text.iter().filter(|byte| **byte == b'\n').count();
    }
    Ok(lines)
}

/// Returns the name and content of every log.
fn logs(dir: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok((name, text))
    };
    entries.map(|entry| read(entry.context("cannot list the logs")?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::root;

    #[test]
    fn every_listed_secret_is_in_the_test_file_that_is_listed_with_it() {
        for (secret, file) in LISTED_SECRETS {
            let text = fs::read_to_string(root().join(file)).unwrap();
            assert!(text.contains(secret), "{file} does not contain {secret}");
        }
    }

    #[test]
    fn search_finds_a_secret_in_logs_and_counts_lines_by_role() {
        let dir = std::env::temp_dir().join(format!("belljar-xtask-logs-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("broker-7.log"), "one\ntwo=secret-value\n").unwrap();
        fs::write(dir.join("broker-8.log"), "three\n").unwrap();
        let search = Search::new(["secret-value"]);
        assert_eq!(find(&dir, &search).unwrap(), ["broker-7.log (plain)"]);
        assert_eq!(find(&dir, &Search::new(["other-value"])).unwrap(), Vec::<String>::new());
        check_search(&dir).unwrap();
        assert_eq!(find(&dir, &search).unwrap().len(), 1, "the canary logs were removed");
        assert_eq!(lines_of_roles(&dir).unwrap().get("broker"), Some(&3));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn recorded_secrets_has_each_secret_once_and_no_filler() {
        let text = "a-secret-of-a-test\na-secret-of-a-test\nshort\nxxxxxxxxxxxxxxxxxxxxxx\n";
        assert_eq!(recorded_secrets(text), BTreeSet::from(["a-secret-of-a-test"]));
    }
}
