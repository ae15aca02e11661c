//! `cargo xtask test`: runs all checks of CI.
//!
//! The command installs missing packages and then runs the fastest checks first. Root runs the tests
//! twice: as root, and as a plain user that it creates (see [`crate::user`]), because boxes of root are
//! built in a different way.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::logs::Logs;
use crate::shell::{
    Args, cargo, embed_worker, program, read, root, run, shown, succeeds, target_dir, uid,
};
use crate::skips::Skips;
use crate::steps::Steps;
use crate::times::{self, Times};
use crate::{clients, dist, packages, tidy, user};

const HELP: &str = "\
Run all checks of CI: install, fmt, clippy, build, tests, tests as a plain user, doctests, docs, tidy.
Print the time of each step, the slowest tests and all skipped checks at the end. With CI=true an
unexpected skip is a failure.

Usage: cargo xtask test [FILTER] [--no-install]

  FILTER        run only tests whose name contains FILTER, as root and as a plain user, without lints and docs
  --no-install  install no packages; tests that need a missing package fail
";

/// The package of the worker, which is built before the program that embeds it.
const WORKER_PACKAGE: &str = "belljar-worker";

/// A nextest filter that excludes tests of protocols and agents, which give the same result for every
/// user.
const NOT_PROTOCOL_TESTS: &str = "not test(/^mcp::(conformance|inspector|python|agents)::/)";

/// Packages whose tests run a second time as a plain user, because they build boxes or handle files
/// that boxes wrote.
const UNPRIVILEGED: &[&str] =
    &["belljar", "belljar-attacks", "belljar-box", "belljar-engine", "belljar-workspace"];

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(mut args) = Args::new(args, HELP) else { return Ok(()) };
    let install = !args.flag("--no-install");
    let filter = args.positional()?;
    let mut run = Run {
        steps: Steps::new(),
        times: Times::default(),
        skips: Skips::new(target_dir()?.join("xtask-test/skips"))?,
    };
    let result = run_steps(&mut run, install, filter.as_deref());
    println!("\n=== summary\n{}", run.steps.summary());
    println!("{}", run.times.summary());
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    // Skips are printed in any case, but the error of a failed step has priority.
    let skipped = run.skips.finish(is_ci);
    result.and(skipped)
}

/// The data of the summary that `cargo xtask test` prints at the end.
struct Run {
    steps: Steps,
    times: Times,
    skips: Skips,
}

fn run_steps(this: &mut Run, install: bool, filter: Option<&str>) -> Result<()> {
    let Run { steps, times, skips } = this;
    if install {
        steps.step("install packages", || packages::install(packages::FOR_TESTS))?;
    }
    // Downloads wait for the network and builds for the processor, so both run at the same time.
    let clients = install.then(|| std::thread::spawn(clients::install));
    steps.step("build the worker", build_worker)?;
    if filter.is_none() {
        steps.step("fmt", || run(cargo().args(["fmt", "--all", "--check"])))?;
        steps.step("clippy", || {
            let lint =
                ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
            run(cargo().args(lint))
        })?;
    }
    let built = steps.step("build", build)?;
    // Flush the build output to disk now. Otherwise tests would wait for it whenever a ledger is flushed.
    run(&mut Command::new("sync"))?;
    if let Some(clients) = clients {
        steps.step("install clients", || {
            clients
                .join()
                .unwrap_or_else(|_| bail!("the thread that installs the clients panicked"))
        })?;
    }
    let runner = Runner::find();
    let user_name = if uid()? == 0 { "root" } else { "this user" };
    let logs = Logs::new()?;
    steps.step(&format!("tests as {user_name}"), || {
        runner.run(&TestUser::Current { logs: &logs }, filter, times, skips)
    })?;
    if filter.is_none() {
        steps.step("search for secrets in logs", || logs.search())?;
    }
    if uid()? == 0 {
        steps.step("tests as a plain user", || {
            let user = user::prepare(&built.belljar()?)?;
            let packages = built.unprivileged()?;
            let test_user = TestUser::Unprivileged { user: &user, packages: &packages };
            runner.run(&test_user, filter, times, skips)
        })?;
    } else {
        skips.step("tests as root", "not run: needs root");
    }
    if filter.is_some() {
        return Ok(());
    }
    // The examples were built with the tests. `cargo run` would build them again with other features.
    let examples = target_dir()?.join("debug/examples");
    steps.step("examples of the engine", || run(&mut program(examples.join("review_a_run"))))?;
    if install {
        steps.step("test programs in Node and Deno", || clients::oracle(&examples.join("shop")))?;
        steps.step("workflows of GitHub", clients::lint_workflows)?;
    } else {
        for step in ["test programs in Node and Deno", "workflows of GitHub"] {
            skips.step(step, "not run: --no-install");
        }
    }
    if install && uid()? == 0 {
        steps.step("packages", || check_packages(&built.belljar()?))?;
    } else {
        skips.step("packages", "not run: needs root, and no --no-install");
    }
    steps.step("doctests", || run(cargo().args(["test", "--workspace", "--doc", "--locked"])))?;
    steps.step("docs", || {
        let docs = ["doc", "--workspace", "--no-deps", "--locked"];
        run(cargo().args(docs).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    steps.step("tidy", || tidy::check(root()))?;
    if succeeds(cargo().args(["deny", "--version"])) {
        steps.step("cargo deny", || {
            run(cargo().args(["deny", "check", "licenses", "bans", "sources"]))
        })?;
    } else {
        skips.step("cargo deny", "not run: not installed");
    }
    skips.step("fuzz targets", "not run: need a nightly toolchain; tests replay their seeds");
    Ok(())
}

/// The programs and tests that a build produced.
#[derive(Debug)]
struct Built {
    /// The package name and path of each program.
    programs: Vec<(String, PathBuf)>,
    /// Packages that have integration tests.
    tested: Vec<String>,
}

impl Built {
    fn belljar(&self) -> Result<PathBuf> {
        let found = self.programs.iter().find(|(name, _)| name == "belljar");
        Ok(found.context("the build has no program `belljar`")?.1.clone())
    }

    /// Returns the packages to test as a plain user. An empty list is an error, because a test run
    /// without tests would pass.
    fn unprivileged(&self) -> Result<Vec<&str>> {
        let packages: Vec<&str> = UNPRIVILEGED
            .iter()
            .copied()
            .filter(|name| self.tested.iter().any(|tested| tested == name))
            .collect();
        if packages.is_empty() {
            bail!("none of the packages {} has integration tests", UNPRIVILEGED.join(", "));
        }
        Ok(packages)
    }
}

/// Builds the worker with the debug profile, as its own tests use it, and makes all later builds embed
/// it. The release worker is static and optimised, and building it as well would take much longer.
fn build_worker() -> Result<()> {
    run(cargo().args(["build", "--package", WORKER_PACKAGE, "--locked"]))?;
    let built = target_dir()?.join("debug/belljar-worker");
    let worker = built.with_extension("stripped");
    run(program("strip").arg("-o").arg(&worker).arg(&built))?;
    embed_worker(worker);
    Ok(())
}

/// Builds all programs and test binaries, and finds them through the JSON messages of cargo.
fn build() -> Result<Built> {
    let format = "--message-format=json-render-diagnostics";
    let programs = read(cargo().args(["build", "--workspace", "--locked", format]))?;
    let tests = read(cargo().args(["test", "--workspace", "--no-run", "--locked", format]))?;
    Ok(Built {
        programs: artifacts(&programs, "bin")?,
        tested: artifacts(&tests, "test")?.into_iter().map(|(name, _)| name).collect(),
    })
}

/// Installs packages of the program under test in new root file systems. The symbols would triple the size
/// of the packages.
fn check_packages(belljar: &Path) -> Result<()> {
    let stripped = belljar.with_extension("stripped");
    run(program("strip").arg("-o").arg(&stripped).arg(belljar))?;
    dist::check(&stripped)
}

/// Returns the package name and path of every executable of one kind, such as `bin` or `test`.
fn artifacts(messages: &str, kind: &str) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for line in messages.lines() {
        let message: Value =
            serde_json::from_str(line).context("cannot parse a message of cargo")?;
        let kinds = message.pointer("/target/kind").and_then(Value::as_array);
        let executable = message.get("executable").and_then(Value::as_str);
        let manifest = message.get("manifest_path").and_then(Value::as_str);
        let (Some(kinds), Some(executable), Some(manifest)) = (kinds, executable, manifest) else {
            continue;
        };
        if kinds.iter().any(|artifact_kind| artifact_kind == kind) {
            found.push((package_name(Path::new(manifest))?, executable.into()));
        }
    }
    Ok(found)
}

fn package_name(manifest: &Path) -> Result<String> {
    let text = std::fs::read_to_string(manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let table: toml::Table =
        text.parse().with_context(|| format!("cannot parse {}", manifest.display()))?;
    let name =
        table.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    Ok(name.with_context(|| format!("{} has no package name", manifest.display()))?.to_owned())
}

/// The user that runs the tests.
enum TestUser<'a> {
    Current { logs: &'a Logs },
    Unprivileged { user: &'a user::User, packages: &'a [&'a str] },
}

impl TestUser<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Current { .. } => "as this user",
            Self::Unprivileged { .. } => "as a plain user",
        }
    }
}

/// The program that runs the tests: nextest if it is installed, otherwise `cargo test`.
enum Runner {
    Nextest,
    Cargo,
}

impl Runner {
    fn find() -> Self {
        if succeeds(cargo().args(["nextest", "--version"])) { Self::Nextest } else { Self::Cargo }
    }

    fn run(
        &self,
        user: &TestUser<'_>,
        filter: Option<&str>,
        times: &mut Times,
        skips: &Skips,
    ) -> Result<()> {
        let mut command = cargo();
        match self {
            Self::Nextest => command.args(["nextest", "run", "--locked"]),
            Self::Cargo => command.args(["test", "--locked", "--no-fail-fast"]),
        };
        match user {
            TestUser::Current { logs } => {
                logs.record(&mut command);
                command.args(["--workspace", "--lib", "--bins", "--tests"]);
            }
            TestUser::Unprivileged { user, packages } => {
                command.env(runner_variable()?, &user.runner);
                match self {
                    // The same packages as for the current user, so that cargo builds nothing again.
                    Self::Nextest => command
                        .args(["--workspace", "--lib", "--bins", "--tests", "--filterset"])
                        .arg(package_filter(packages)),
                    Self::Cargo => {
                        for package in *packages {
                            command.args(["--package", package]);
                        }
                        command.args(["--lib", "--test", "*"])
                    }
                };
                // A filter may match only tests that do not run as a plain user.
                if let (Self::Nextest, Some(_)) = (self, filter) {
                    command.arg("--no-tests=pass");
                }
            }
        }
        if let Self::Nextest = self {
            // Most tests wait for other processes during half of their time.
            let threads = std::thread::available_parallelism().map_or(2, NonZero::get) * 2;
            command.arg("--test-threads").arg(threads.to_string());
        }
        command.args(filter);
        // Without a backtrace, the last lines of a failed test are its message.
        command.env("RUST_BACKTRACE", "0");
        println!("{}", shown(&command));
        if let (Self::Nextest, TestUser::Current { .. }, None) = (self, user, filter) {
            refuse_ignored()?;
        }
        skips.record(&mut command);
        if let Self::Cargo = self {
            return run(&mut command);
        }
        // Remove the report of an earlier run, so that it is not read as the report of this run.
        let report = times::report()?;
        if report.exists() {
            std::fs::remove_file(&report)
                .with_context(|| format!("cannot remove {}", report.display()))?;
        }
        let result = run(&mut command);
        if report.exists() {
            times.add(user.name())?;
        }
        result
    }
}

/// Returns a nextest filter for the library tests and integration tests of these packages.
fn package_filter(packages: &[&str]) -> String {
    let packages: Vec<String> = packages.iter().map(|name| format!("package(={name})")).collect();
    format!("({}) and (kind(lib) or kind(test)) and {NOT_PROTOCOL_TESTS}", packages.join(" or "))
}

/// Fails if nextest lists an ignored test, which would never run. `tidy` finds the attribute `#[ignore]`;
/// this check also finds tests with their own harness that list themselves as ignored by mistake.
fn refuse_ignored() -> Result<()> {
    let list = ["nextest", "list", "--workspace", "--locked", "--message-format=json"];
    let ignored = ignored_tests(&read(cargo().args(list))?)?;
    if !ignored.is_empty() {
        bail!("these tests are listed as ignored and would not run: {}", ignored.join(", "));
    }
    Ok(())
}

fn ignored_tests(list: &str) -> Result<Vec<String>> {
    let list: Value = serde_json::from_str(list).context("cannot parse the list of tests")?;
    let suites = list
        .get("rust-suites")
        .and_then(Value::as_object)
        .context("the list of tests has no `rust-suites`")?;
    let mut found = Vec::new();
    for (suite, details) in suites {
        let cases = details.get("testcases").and_then(Value::as_object).into_iter().flatten();
        let ignored = cases.filter(|(_, case)| case.get("ignored") == Some(&Value::Bool(true)));
        found.extend(ignored.map(|(name, _)| format!("{suite} {name}")));
    }
    Ok(found)
}

/// Returns the name of the environment variable that sets the runner of test binaries for cargo and
/// nextest.
fn runner_variable() -> Result<String> {
    let text =
        read(Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV"))?;
    let host = text
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("the output of `rustc -vV` has no host")?;
    Ok(format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_returns_the_executables_of_one_kind_from_cargo_messages() {
        let manifest = root().join("xtask/Cargo.toml");
        let line = |kind: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"{}","target":{{"kind":["{kind}"]}},"executable":{executable}}}"#,
                manifest.display()
            )
        };
        let messages = [
            line("bin", r#""/t/xtask""#),
            line("test", r#""/t/deps/it""#),
            line("lib", "null"),
            r#"{"reason":"build-finished"}"#.to_owned(),
        ]
        .join("\n");
        assert_eq!(artifacts(&messages, "bin").unwrap(), [("xtask".to_owned(), "/t/xtask".into())]);
        assert_eq!(
            artifacts(&messages, "test").unwrap(),
            [("xtask".to_owned(), "/t/deps/it".into())]
        );
    }

    #[test]
    fn ignored_tests_are_found_in_the_list_of_nextest() {
        let list = r#"{"rust-suites":{
            "a::it":{"testcases":{"runs":{"ignored":false},"sleeps":{"ignored":true}}},
            "b":{"testcases":{}}}}"#;
        assert_eq!(ignored_tests(list).unwrap(), ["a::it sleeps"]);
        assert!(ignored_tests("{}").is_err());
    }

    #[test]
    fn build_without_tests_for_the_plain_user_is_an_error() {
        let built = |tested: &[&str]| Built {
            programs: Vec::new(),
            tested: tested.iter().map(|&name| name.to_owned()).collect(),
        };
        assert!(built(&["belljar-model"]).unprivileged().is_err());
        assert_eq!(
            built(&["belljar-model", "belljar-box"]).unprivileged().unwrap(),
            ["belljar-box"]
        );
    }
}
