//! Lists the checks that a test run skipped, with the reasons.
//!
//! A test that cannot check something calls `belljar_testkit::skip`, which adds a line to the file that
//! the variable `BELLJAR_SKIPS` names. Skipped steps of `cargo xtask test` are added here. The summary
//! prints all skips. In CI, where everything is installed, an unexpected skip is a failure.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Skips that CI accepts: the end of the name of the test or step, and the reason why CI accepts it.
const EXPECTED: &[(&str, &str)] = &[
    ("cargo deny", "tidy checks licences, bans and sources itself"),
    ("fuzz targets", "tests replay the seeds; fuzzing is a separate command, `cargo xtask fuzz`"),
    (
        "open_refuses_a_state_directory_of_another_user_and_names_the_user",
        "the run as root checks the other user",
    ),
    (
        "files_that_root_writes_to_a_repository_belong_to_the_owner_of_the_repository",
        "the run as root checks the owner",
    ),
    ("d16_kernel_limits_deleted_files_of_a_box_of_root", "the run as root mounts the image"),
    (
        "run_in_an_image_keeps_deletions_links_modes_and_attributes",
        "the run as root mounts the image",
    ),
    (
        "h12_nothing_starts_on_a_full_disk_and_the_host_holds_its_result_until_there_is_room",
        "the run as root mounts the disk",
    ),
    ("h12_ended_runs_survive_a_power_failure_on_ext4", "the run as root mounts the disk"),
    ("h12_ended_runs_survive_a_power_failure_on_xfs", "the run as root mounts the disk"),
    ("h12_ended_runs_survive_a_power_failure_on_btrfs", "the run as root mounts the disk"),
    ("a29_supervisor_refuses_connections_of_other_users", "the run as root checks the other user"),
    ("rustc_and_cargo_compile_and_run_programs_in_a_box", "the run as root reads the toolchain"),
];

/// The prefix of skip reasons that CI accepts in tests of `crates/attacks/tests`: only root can run the
/// control of the attack. Without a run as root, the step `tests as root` is an unexpected skip.
const NO_CONTROL: &str = "without a control as a plain user: ";

/// The skips of one run of `cargo xtask test`.
#[derive(Debug)]
pub(crate) struct Skips {
    file: PathBuf,
    steps: Vec<(String, String)>,
}

impl Skips {
    /// Creates an empty list. Tests of every user can append to the file.
    pub(crate) fn new(file: PathBuf) -> Result<Self> {
        let create = || -> std::io::Result<()> {
            std::fs::create_dir_all(file.parent().unwrap_or(&file))?;
            File::create(&file)?.set_permissions(Permissions::from_mode(0o666))
        };
        create().with_context(|| format!("cannot create {}", file.display()))?;
        Ok(Self { file, steps: Vec::new() })
    }

    /// Sets the environment variable that makes tests of a command record their skips.
    pub(crate) fn record(&self, tests: &mut Command) {
        tests.env("BELLJAR_SKIPS", &self.file);
    }

    /// Records a step of `cargo xtask test` that cannot run on this machine.
    pub(crate) fn step(&mut self, name: &str, reason: &str) {
        println!("\n{name}: {reason}");
        self.steps.push((name.to_owned(), reason.to_owned()));
    }

    /// Prints all skips. In CI, an unexpected skip is an error.
    pub(crate) fn finish(&self, is_ci: bool) -> Result<()> {
        let text = std::fs::read_to_string(&self.file)
            .with_context(|| format!("cannot read {}", self.file.display()))?;
        let all: Vec<(String, String)> = self.steps.iter().cloned().chain(parse(&text)).collect();
        print!("{}", summary(&all));
        let unexpected = unexpected(&all);
        if is_ci && !unexpected.is_empty() {
            bail!("unexpected skips in CI: {}", unexpected.join(", "));
        }
        Ok(())
    }
}

/// Parses lines of the form `name<TAB>reason`.
fn parse(text: &str) -> impl Iterator<Item = (String, String)> {
    let split = |line: &str| {
        let (name, reason) = line.split_once('\t').unwrap_or((line, "no reason"));
        (name.to_owned(), reason.to_owned())
    };
    text.lines().map(split)
}

/// Returns a list of all skips. Each entry says whether CI accepts the skip, and why.
fn summary(all: &[(String, String)]) -> String {
    let mut by_name: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (name, reason) in all {
        *by_name.entry((name, reason)).or_default() += 1;
    }
    let mut text = format!("skipped: {}\n", all.len());
    for ((name, reason), count) in by_name {
        let times = if count == 1 { String::new() } else { format!(" ({count} times)") };
        let verdict = accepted(name, reason).map_or_else(
            || "not accepted in CI".to_owned(),
            |reason| format!("accepted: {reason}"),
        );
        text += &format!("  {name}: {reason}{times}; {verdict}\n");
    }
    text
}

/// Returns the reason why CI accepts a skip; `None` if CI does not accept it.
fn accepted(name: &str, reason: &str) -> Option<&'static str> {
    if reason.starts_with(NO_CONTROL) {
        return Some("the run as root has the control");
    }
    EXPECTED.iter().find(|(row, _)| name.ends_with(row)).map(|(_, reason)| *reason)
}

fn unexpected(all: &[(String, String)]) -> Vec<&str> {
    let is_unexpected = |(name, reason): &&(String, String)| accepted(name, reason).is_none();
    all.iter().filter(is_unexpected).map(|(name, _)| name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_skipped_tests_counts_skips_and_lists_each_name_once() {
        let text = "a::b\tneeds root\na::b\tneeds root\ncargo deny\tnot installed\n";
        let all: Vec<_> = parse(text).collect();
        let expect = "skipped: 3\n  a::b: needs root (2 times); not accepted in CI\n  \
            cargo deny: not installed; accepted: tidy checks licences, bans and sources itself\n";
        assert_eq!(summary(&all), expect);
        assert_eq!(summary(&[]), "skipped: 0\n");
    }

    #[test]
    fn skips_outside_the_list_of_expected_skips_are_unexpected() {
        let text = format!(
            "compat::rustc_and_cargo_compile_and_run_programs_in_a_box\tx\nother\ty\nd01\t{NO_CONTROL}x\n"
        );
        let all: Vec<_> = parse(&text).collect();
        assert_eq!(unexpected(&all), ["other"]);
    }

    #[test]
    fn unexpected_skip_fails_a_test_run_only_in_ci() {
        let dir = std::env::temp_dir().join(format!("xtask-skips-{}", std::process::id()));
        let mut skips = Skips::new(dir.join("skips")).unwrap();
        skips.step("cargo deny", "not installed, not run");
        assert!(skips.finish(true).is_ok());
        std::fs::write(dir.join("skips"), "a::b\tneeds root\n").unwrap();
        assert!(skips.finish(false).is_ok());
        let error = skips.finish(true).unwrap_err().to_string();
        assert_eq!(error, "unexpected skips in CI: a::b");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
