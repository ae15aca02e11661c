//! Logs of the whole test suite: every command and role of the tests writes them at level `trace`, and
//! none may hold a secret of a test, in whatever form.

mod forms;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::shell::target_dir;
use forms::{Search, forms};

/// Names the directory to the tests; see `Lab` in `crates/testkit`.
const VARIABLE: &str = "BELLJAR_TEST_LOGS";

/// Names the file to which tests add the secrets that they make or give to `belljar secret set`, one
/// per line; see `crates/testkit/src/planted.rs`.
const PLANTED: &str = "BELLJAR_TEST_SECRETS";

/// So many secrets have to be in that file, or the tests do not add them.
const PLANTED_FLOOR: usize = 12;

/// A shorter value is not searched for: it may be an ordinary word.
const SHORTEST: usize = 12;

/// Secrets that tests put into requests and tokens in other ways, with the file that uses each.
const SECRETS: &[(&str, &str)] = &[
    ("tok-4f1dB7c0ffee4f1dB7c0ffee", "crates/belljar/tests/e2e/net_cli.rs"),
    ("canary-4f1dB7-value-of-a-secret", "crates/belljar/tests/e2e/secret.rs"),
    ("real-secret/9f+4k=Zq~0123456789", "crates/belljar/tests/e2e/logs.rs"),
    ("shop_live_4f9d2c7b1a8e6035d4c2", "crates/testkit/src/shop.rs"),
    ("ghp_thisIsTheRealValue0123456789abcdefAB", "crates/belljar/tests/e2e/attacks.rs"),
    ("value-of-a-variable/7d+2=1c0e5b", "crates/belljar/tests/e2e/logs.rs"),
    ("ghs_aTokenThatTheServerMadeForThisSession0", "crates/belljar/tests/e2e/attacks/secrets.rs"),
];

/// Roles that must have written at least [`FLOOR`] lines, or the search has seen nothing.
const ROLES: &[&str] = &["command", "supervisor", "broker", "screen"];
const FLOOR: usize = 100;

/// The directory of the logs, and the file of the secrets.
#[derive(Debug)]
pub(crate) struct Logs {
    dir: PathBuf,
    planted: PathBuf,
}

impl Logs {
    /// An empty directory, and an empty file beside it.
    pub(crate) fn new() -> Result<Self> {
        let (dir, planted) = (target_dir()?.join("test-logs"), target_dir()?.join("test-secrets"));
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        fs::write(&planted, "").with_context(|| format!("make {}", planted.display()))?;
        Ok(Self { dir, planted })
    }

    /// Has the tests of a command write logs and the secrets that they plant.
    pub(crate) fn record(&self, command: &mut Command) {
        command.env(VARIABLE, &self.dir).env(PLANTED, &self.planted);
    }

    /// Fails if a log holds a secret, if a role or the tests wrote too little, or if the search does
    /// not find a canary in one of its forms.
    pub(crate) fn search(&self) -> Result<()> {
        check_search(&self.dir)?;
        let lines = lines_of_roles(&self.dir)?;
        for role in ROLES {
            let count = lines.get(*role).copied().unwrap_or(0);
            if count < FLOOR {
                bail!("the logs have {count} lines of the role {role}, and {FLOOR} are expected");
            }
        }
        let text = fs::read_to_string(&self.planted).context("read the secrets of the tests")?;
        let planted = planted(&text);
        if planted.len() < PLANTED_FLOOR {
            let count = planted.len();
            bail!("the tests planted {count} secrets, and {PLANTED_FLOOR} are expected");
        }
        let secrets = SECRETS.iter().map(|(secret, _)| *secret).chain(planted.iter().copied());
        let found = find(&self.dir, &Search::new(secrets))?;
        if !found.is_empty() {
            bail!("secrets of tests are in these logs: {}", found.join(", "));
        }
        println!("secrets searched for: {}; lines by role: {lines:?}", planted.len());
        Ok(())
    }
}

/// The secrets that the tests added, each once. Texts of a single character are filling.
fn planted(text: &str) -> BTreeSet<&str> {
    let is_filling = |line: &str| line.chars().collect::<BTreeSet<char>>().len() < 4;
    text.lines().filter(|line| line.len() >= SHORTEST && !is_filling(line)).collect()
}

/// Plants a canary in each of its forms, each in a log of its own, and fails if one is not found.
fn check_search(dir: &Path) -> Result<()> {
    let canary = format!("canary/{}+\"of this\"=search~", std::process::id());
    let mut expected = Vec::new();
    let mut logs = Vec::new();
    for (number, (name, form)) in forms(&canary).into_iter().enumerate() {
        let file = format!("command-canary-{number:02}.log");
        let text = [b"value=", &form[..], b"\n"].concat();
        fs::write(dir.join(&file), text).context("plant a canary")?;
        expected.push(format!("{file} ({name})"));
        logs.push(dir.join(file));
    }
    let mut found = find(dir, &Search::new([canary.as_str()]))?;
    found.sort();
    for log in logs {
        fs::remove_file(log).context("remove a canary")?;
    }
    if found != expected {
        bail!("the search finds canaries in {found:?}, and they are in {expected:?}");
    }
    Ok(())
}

/// The logs that hold a secret, with the names of its forms.
fn find(dir: &Path, search: &Search) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (name, text) in logs(dir)? {
        let forms: Vec<&str> = search.count(&text).into_keys().collect();
        if !forms.is_empty() {
            found.push(format!("{name} ({})", forms.join(", ")));
        }
    }
    Ok(found)
}

fn lines_of_roles(dir: &Path) -> Result<BTreeMap<String, usize>> {
    let mut lines = BTreeMap::new();
    for (name, text) in logs(dir)? {
        let role = name.split('-').next().unwrap_or_default().to_owned();
        *lines.entry(role).or_insert(0) += text.iter().filter(|byte| **byte == b'\n').count();
    }
    Ok(lines)
}

fn logs(dir: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let entries = fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok((name, text))
    };
    entries.map(|entry| read(entry.context("list the logs")?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::root;

    #[test]
    fn every_listed_secret_is_used_by_the_test_that_is_named_with_it() {
        for (secret, file) in SECRETS {
            let text = fs::read_to_string(root().join(file)).unwrap();
            assert!(text.contains(secret), "{file} does not use {secret}");
        }
    }

    #[test]
    fn the_search_finds_a_secret_and_counts_lines_by_role() {
        let dir = std::env::temp_dir().join(format!("belljar-xtask-logs-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("broker-7.log"), "one\ntwo=secret-value\n").unwrap();
        fs::write(dir.join("broker-8.log"), "three\n").unwrap();
        let search = Search::new(["secret-value"]);
        assert_eq!(find(&dir, &search).unwrap(), ["broker-7.log (plain)"]);
        assert_eq!(find(&dir, &Search::new(["other-value"])).unwrap(), Vec::<String>::new());
        check_search(&dir).unwrap();
        assert_eq!(find(&dir, &search).unwrap().len(), 1, "the canary is gone");
        assert_eq!(lines_of_roles(&dir).unwrap().get("broker"), Some(&3));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn planted_secrets_are_each_there_once_and_without_filling() {
        let text = "a-secret-of-a-test\na-secret-of-a-test\nshort\nxxxxxxxxxxxxxxxxxxxxxx\n";
        assert_eq!(planted(text), BTreeSet::from(["a-secret-of-a-test"]));
    }
}
