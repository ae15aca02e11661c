//! What a run of the tests did not check, and why.
//!
//! A test that cannot check something calls `belljar_testkit::skip`, which adds a line to the file of
//! `BELLJAR_SKIPS`; steps that cannot run are added here. The summary prints all of them. In CI, where
//! everything is installed, a skip that is not expected is a failure.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Skips that CI accepts: how the name of the test or step ends, and why nothing is lost.
const EXPECTED: &[(&str, &str)] = &[
    ("cargo deny", "tidy checks licences, bans and sources itself"),
    ("fuzz targets", "`cargo xtask fuzz` is a command of its own"),
    ("oracle.mjs", "the tests of programs check against what it wrote"),
    ("a29_nobody_else_on_the_host_speaks_to_a_keeper", "the run as root checks the other user"),
    ("rust_is_compiled_and_run", "the run as root reads the toolchain"),
];

/// The skips of one run of `cargo xtask test`.
#[derive(Debug)]
pub(crate) struct Skips {
    file: PathBuf,
    steps: Vec<(String, String)>,
}

impl Skips {
    /// Starts with none. Tests of every user can add to the file.
    pub(crate) fn new(file: PathBuf) -> Result<Self> {
        let make = || -> std::io::Result<()> {
            std::fs::create_dir_all(file.parent().unwrap_or(&file))?;
            File::create(&file)?.set_permissions(Permissions::from_mode(0o666))
        };
        make().with_context(|| format!("make {}", file.display()))?;
        Ok(Self { file, steps: Vec::new() })
    }

    /// Has tests that this command runs record their skips.
    pub(crate) fn record(&self, tests: &mut Command) {
        tests.env("BELLJAR_SKIPS", &self.file);
    }

    /// Records a step that cannot run here.
    pub(crate) fn step(&mut self, name: &str, reason: &str) {
        println!("\n{name}: {reason}");
        self.steps.push((name.to_owned(), reason.to_owned()));
    }

    /// Prints all skips. In CI those that are not expected are an error.
    pub(crate) fn finish(&self, is_ci: bool) -> Result<()> {
        let text = std::fs::read_to_string(&self.file)
            .with_context(|| format!("read {}", self.file.display()))?;
        let all: Vec<(String, String)> = self.steps.iter().cloned().chain(parse(&text)).collect();
        print!("{}", summary(&all));
        let unexpected = unexpected(&all);
        if is_ci && !unexpected.is_empty() {
            bail!("skipped in CI, where everything has to run: {}", unexpected.join(", "));
        }
        Ok(())
    }
}

/// Lines of `name<TAB>reason`.
fn parse(text: &str) -> impl Iterator<Item = (String, String)> {
    let split = |line: &str| {
        let (name, reason) = line.split_once('\t').unwrap_or((line, "no reason"));
        (name.to_owned(), reason.to_owned())
    };
    text.lines().map(split)
}

fn summary(all: &[(String, String)]) -> String {
    let mut by_name: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (name, reason) in all {
        *by_name.entry((name, reason)).or_default() += 1;
    }
    let mut text = format!("skipped: {}\n", all.len());
    for ((name, reason), count) in by_name {
        let times = if count == 1 { String::new() } else { format!(" ({count} times)") };
        text += &format!("  {name}: {reason}{times}\n");
    }
    text
}

fn unexpected(all: &[(String, String)]) -> Vec<&str> {
    let is_expected = |name: &str| EXPECTED.iter().any(|(row, _)| name.ends_with(row));
    all.iter().map(|(name, _)| name.as_str()).filter(|name| !is_expected(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_skips_and_names_each_once() {
        let all: Vec<_> = parse("a::b\tneeds root\na::b\tneeds root\nc\tno git\n").collect();
        let expect = "skipped: 3\n  a::b: needs root (2 times)\n  c: no git\n";
        assert_eq!(summary(&all), expect);
        assert_eq!(summary(&[]), "skipped: 0\n");
    }

    #[test]
    fn only_skips_off_the_list_are_unexpected() {
        let all: Vec<_> = parse("compat::rust_is_compiled_and_run\tx\nother\ty\n").collect();
        assert_eq!(unexpected(&all), ["other"]);
    }

    #[test]
    fn an_unexpected_skip_fails_a_run_in_ci_only() {
        let dir = std::env::temp_dir().join(format!("xtask-skips-{}", std::process::id()));
        let mut skips = Skips::new(dir.join("skips")).unwrap();
        skips.step("cargo deny", "not installed, not run");
        assert!(skips.finish(true).is_ok());
        std::fs::write(dir.join("skips"), "a::b\tneeds root\n").unwrap();
        assert!(skips.finish(false).is_ok());
        let error = skips.finish(true).unwrap_err().to_string();
        assert_eq!(error, "skipped in CI, where everything has to run: a::b");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
