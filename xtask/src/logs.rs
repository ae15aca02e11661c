//! Logs of the whole test suite: every command and role of the tests writes them at level `trace`, and
//! none may hold a secret of a test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::shell::target_dir;

/// Names the directory to the tests; see `Lab` in `crates/testkit`.
const VARIABLE: &str = "BELLJAR_TEST_LOGS";

/// Secrets that tests put into vaults, requests and tokens, with the file that uses each.
const SECRETS: &[(&str, &str)] = &[
    ("tok-4f1dB7c0ffee4f1dB7c0ffee", "crates/belljar/tests/e2e/net_cli.rs"),
    ("canary-4f1dB7-value-of-a-secret", "crates/belljar/tests/e2e/secret.rs"),
    ("real-secret/9f+4k=Zq~0123456789", "crates/belljar/tests/e2e/logs.rs"),
    ("shop_live_4f9d2c7b1a8e6035d4c2", "crates/testkit/src/shop.rs"),
];

/// Roles that must have written at least [`FLOOR`] lines, or the search has seen nothing.
const ROLES: &[&str] = &["command", "supervisor", "broker", "screen"];
const FLOOR: usize = 100;

/// The directory of the logs.
#[derive(Debug)]
pub(crate) struct Logs(PathBuf);

impl Logs {
    /// An empty directory.
    pub(crate) fn new() -> Result<Self> {
        let dir = target_dir()?.join("test-logs");
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        Ok(Self(dir))
    }

    /// Has the tests of a command write logs.
    pub(crate) fn record(&self, command: &mut Command) {
        command.env(VARIABLE, &self.0);
    }

    /// Fails if a log holds a secret, if a role wrote too little, or if the search finds no canary.
    pub(crate) fn search(&self) -> Result<()> {
        let canary = format!("canary-of-this-search-{}", std::process::id());
        let planted = self.0.join("command-canary.log");
        fs::write(&planted, format!("value={canary}\n")).context("plant a canary")?;
        let found = find(&self.0, &[&canary])?;
        fs::remove_file(&planted).context("remove the canary")?;
        if found.is_empty() {
            bail!("the search does not find a canary that was planted in a log");
        }
        let lines = lines_of_roles(&self.0)?;
        for role in ROLES {
            let count = lines.get(*role).copied().unwrap_or(0);
            if count < FLOOR {
                bail!("the logs have {count} lines of the role {role}, and {FLOOR} are expected");
            }
        }
        let secrets: Vec<&str> = SECRETS.iter().map(|(secret, _)| *secret).collect();
        let found = find(&self.0, &secrets)?;
        if !found.is_empty() {
            bail!("secrets of tests are in these logs: {}", found.join(", "));
        }
        println!("lines by role: {lines:?}");
        Ok(())
    }
}

/// The logs that hold one of these values.
fn find(dir: &Path, values: &[&str]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (name, text) in logs(dir)? {
        if values.iter().any(|value| text.contains(value)) {
            found.push(name);
        }
    }
    Ok(found)
}

fn lines_of_roles(dir: &Path) -> Result<BTreeMap<String, usize>> {
    let mut lines = BTreeMap::new();
    for (name, text) in logs(dir)? {
        let role = name.split('-').next().unwrap_or_default().to_owned();
        *lines.entry(role).or_insert(0) += text.lines().count();
    }
    Ok(lines)
}

fn logs(dir: &Path) -> Result<Vec<(String, String)>> {
    let entries = fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok((name, String::from_utf8_lossy(&text).into_owned()))
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
        assert_eq!(find(&dir, &["secret-value"]).unwrap(), ["broker-7.log"]);
        assert_eq!(find(&dir, &["other"]).unwrap(), Vec::<String>::new());
        assert_eq!(lines_of_roles(&dir).unwrap().get("broker"), Some(&3));
        fs::remove_dir_all(&dir).unwrap();
    }
}
