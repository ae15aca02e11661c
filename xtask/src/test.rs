//! `cargo xtask test`: the one command of CI, the same on every machine.
//!
//! Installs what is missing, then goes from the cheapest check to the dearest. Root runs the tests
//! twice: as itself, and as a plain user that it makes (see [`crate::user`]), because a box is built
//! in different ways for the two.

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
use crate::{clients, packages, tidy, user};

const HELP: &str = "\
Everything CI does: install, fmt, clippy, build, tests, tests as a plain user, doctests, docs, tidy.
At the end it prints the time of each step, the slowest tests and what was skipped; with CI=true an
unexpected skip is a failure.

Usage: cargo xtask test [FILTER] [--no-install]

  FILTER        run only tests whose name contains it, as root and as the plain user; no lints, no docs
  --no-install  install nothing; what is missing makes tests fail
";

/// The crate of the worker, which is built before the program that embeds it.
const ENGINE: &str = "belljar-worker";

/// What judges a protocol or an agent and not a box is the same for every user.
const NOT_OF_BOXES: &str = "not test(/^mcp::(conformance|inspector|python|agents)::/)";

/// Packages whose tests run a second time as a plain user: those that build boxes or touch what a box
/// left behind.
const UNPRIVILEGED: &[&str] =
    &["belljar", "belljar-attacks", "belljar-box", "belljar-engine", "belljar-workspace"];

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(mut args) = Args::new(args, HELP) else { return Ok(()) };
    let install = !args.flag("--no-install");
    let filter = args.word()?;
    let mut run = Run {
        steps: Steps::new(),
        times: Times::default(),
        skips: Skips::new(target_dir()?.join("xtask-test/skips"))?,
    };
    let result = all(&mut run, install, filter.as_deref());
    println!("\n=== summary\n{}", run.steps.summary());
    println!("{}", run.times.summary());
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    // What failed is told first; skips are printed in any case.
    let skipped = run.skips.finish(is_ci);
    result.and(skipped)
}

/// What the summary at the end is made of.
struct Run {
    steps: Steps,
    times: Times,
    skips: Skips,
}

fn all(this: &mut Run, install: bool, filter: Option<&str>) -> Result<()> {
    let Run { steps, times, skips } = this;
    if install {
        steps.step("install what tests need", || packages::install(packages::FOR_TESTS))?;
    }
    // Downloads wait for others and builds for the processor, so both go on at once.
    let clients = install.then(|| std::thread::spawn(clients::install));
    steps.step("engine", engine)?;
    if filter.is_none() {
        steps.step("fmt", || run(cargo().args(["fmt", "--all", "--check"])))?;
        steps.step("clippy", || {
            let lint =
                ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
            run(cargo().args(lint))
        })?;
    }
    let built = steps.step("build", build)?;
    // A ledger waits for the disk: gigabytes of a build on their way there would stand before it.
    run(&mut Command::new("sync"))?;
    if let Some(clients) = clients {
        steps.step("install clients", || {
            clients.join().unwrap_or_else(|_| bail!("installing them ended early"))
        })?;
    }
    let runner = Runner::find();
    let whoami = if uid()? == 0 { "root" } else { "this user" };
    let logs = Logs::new()?;
    steps.step(&format!("tests as {whoami}"), || {
        runner.run(&Half::Own { logs: &logs }, filter, times, skips)
    })?;
    if filter.is_none() {
        steps.step("search for secrets in logs", || logs.search())?;
    }
    if uid()? == 0 {
        steps.step("tests as a plain user", || {
            let user = user::prepare(&built.belljar()?)?;
            let packages = built.unprivileged()?;
            let half = Half::Unprivileged { user: &user, packages: &packages };
            runner.run(&half, filter, times, skips)
        })?;
    } else {
        skips.step("tests as root", "not root, not run");
    }
    if filter.is_some() {
        return Ok(());
    }
    // Built with the tests. Cargo would build them again for the features of one package.
    let examples = target_dir()?.join("debug/examples");
    steps.step("examples of the engine", || run(&mut program(examples.join("review_a_run"))))?;
    if install {
        steps.step("programs in other engines", || clients::oracle(&examples.join("shop")))?;
    } else {
        skips.step("programs in other engines", "--no-install, not run");
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
        skips.step("cargo deny", "not installed, not run");
    }
    skips.step("fuzz targets", "need a nightly toolchain; tests replay their seeds");
    Ok(())
}

/// What one build made.
#[derive(Debug)]
struct Built {
    /// Package name and path of each program.
    programs: Vec<(String, PathBuf)>,
    /// Packages that have integration tests.
    tested: Vec<String>,
}

impl Built {
    fn belljar(&self) -> Result<PathBuf> {
        let found = self.programs.iter().find(|(name, _)| name == "belljar");
        Ok(found.context("the build made no `belljar`")?.1.clone())
    }

    /// A half that ran nothing would pass, so having nothing to run is an error.
    fn unprivileged(&self) -> Result<Vec<&str>> {
        let packages: Vec<&str> = UNPRIVILEGED
            .iter()
            .copied()
            .filter(|name| self.tested.iter().any(|tested| tested == name))
            .collect();
        if packages.is_empty() {
            bail!("none of {} has integration tests", UNPRIVILEGED.join(", "));
        }
        Ok(packages)
    }
}

/// Builds the engine as its own tests need it, and has the worker made from that. What is shipped is
/// static and optimised, and would have to be built a second time here only to be the same.
fn engine() -> Result<()> {
    run(cargo().args(["build", "--package", ENGINE, "--locked"]))?;
    let built = target_dir()?.join("debug/belljar-worker");
    let worker = built.with_extension("stripped");
    run(program("strip").arg("-o").arg(&worker).arg(&built))?;
    embed_worker(worker);
    Ok(())
}

/// Builds programs and test binaries; cargo's own JSON says where they are.
fn build() -> Result<Built> {
    let format = "--message-format=json-render-diagnostics";
    let programs = read(cargo().args(["build", "--workspace", "--locked", format]))?;
    let tests = read(cargo().args(["test", "--workspace", "--no-run", "--locked", format]))?;
    Ok(Built {
        programs: artifacts(&programs, "bin")?,
        tested: artifacts(&tests, "test")?.into_iter().map(|(name, _)| name).collect(),
    })
}

/// Package name and executable of every artifact of one kind.
fn artifacts(messages: &str, kind: &str) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("a message of cargo")?;
        let kinds = message.pointer("/target/kind").and_then(Value::as_array);
        let executable = message.get("executable").and_then(Value::as_str);
        let manifest = message.get("manifest_path").and_then(Value::as_str);
        let (Some(kinds), Some(executable), Some(manifest)) = (kinds, executable, manifest) else {
            continue;
        };
        if kinds.iter().any(|it| it == kind) {
            found.push((package_name(Path::new(manifest))?, executable.into()));
        }
    }
    Ok(found)
}

fn package_name(manifest: &Path) -> Result<String> {
    let text = std::fs::read_to_string(manifest)
        .with_context(|| format!("read {}", manifest.display()))?;
    let table: toml::Table =
        text.parse().with_context(|| format!("read {}", manifest.display()))?;
    let name =
        table.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    Ok(name.with_context(|| format!("{} has no name", manifest.display()))?.to_owned())
}

/// As whom tests run.
enum Half<'a> {
    Own { logs: &'a Logs },
    Unprivileged { user: &'a user::User, packages: &'a [&'a str] },
}

impl Half<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Own { .. } => "as this user",
            Self::Unprivileged { .. } => "as a plain user",
        }
    }
}

/// What runs tests here: nextest where it is installed, else cargo itself.
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
        half: &Half<'_>,
        filter: Option<&str>,
        times: &mut Times,
        skips: &Skips,
    ) -> Result<()> {
        let mut command = cargo();
        match self {
            Self::Nextest => command.args(["nextest", "run", "--locked"]),
            Self::Cargo => command.args(["test", "--locked", "--no-fail-fast"]),
        };
        match half {
            Half::Own { logs } => {
                logs.record(&mut command);
                command.args(["--workspace", "--lib", "--bins", "--tests"]);
            }
            Half::Unprivileged { user, packages } => {
                command.env(runner_variable()?, &user.runner);
                match self {
                    // The same build as for the other half: features differ for fewer packages.
                    Self::Nextest => command
                        .args(["--workspace", "--lib", "--bins", "--tests", "--filterset"])
                        .arg(of_packages(packages)),
                    Self::Cargo => {
                        for package in *packages {
                            command.args(["--package", package]);
                        }
                        command.args(["--lib", "--test", "*"])
                    }
                };
                // A filter may well name a test that has no unprivileged twin.
                if let (Self::Nextest, Some(_)) = (self, filter) {
                    command.arg("--no-tests=pass");
                }
            }
        }
        if let Self::Nextest = self {
            // Most tests wait for other processes half of their time.
            let threads = std::thread::available_parallelism().map_or(2, NonZero::get) * 2;
            command.arg("--test-threads").arg(threads.to_string());
        }
        command.args(filter);
        // Of a test that fails the last lines are what is looked at: they are to say why.
        command.env("RUST_BACKTRACE", "0");
        println!("{}", shown(&command));
        if let (Self::Nextest, Half::Own { .. }, None) = (self, half, filter) {
            refuse_ignored()?;
        }
        skips.record(&mut command);
        if let Self::Cargo = self {
            return run(&mut command);
        }
        // An old report would be taken for the one of this run.
        let report = times::report()?;
        if report.exists() {
            std::fs::remove_file(&report)
                .with_context(|| format!("remove {}", report.display()))?;
        }
        let result = run(&mut command);
        if report.exists() {
            times.add(half.name())?;
        }
        result
    }
}

/// The library and integration tests of some packages that build boxes. Unit tests of the engine do, too.
fn of_packages(packages: &[&str]) -> String {
    let packages: Vec<String> = packages.iter().map(|name| format!("package(={name})")).collect();
    format!("({}) and (kind(lib) or kind(test)) and {NOT_OF_BOXES}", packages.join(" or "))
}

/// A test that is never run passes everything. The attribute is tidy's business; this also finds a
/// test without the usual harness that lists itself as ignored by mistake.
fn refuse_ignored() -> Result<()> {
    let list = ["nextest", "list", "--workspace", "--locked", "--message-format=json"];
    let ignored = ignored(&read(cargo().args(list))?)?;
    if !ignored.is_empty() {
        bail!("these tests are listed as ignored and would not run: {}", ignored.join(", "));
    }
    Ok(())
}

fn ignored(list: &str) -> Result<Vec<String>> {
    let list: Value = serde_json::from_str(list).context("the list of tests")?;
    let suites =
        list.get("rust-suites").and_then(Value::as_object).context("a list without suites")?;
    let mut found = Vec::new();
    for (suite, about) in suites {
        let cases = about.get("testcases").and_then(Value::as_object).into_iter().flatten();
        let ignored = cases.filter(|(_, case)| case.get("ignored") == Some(&Value::Bool(true)));
        found.extend(ignored.map(|(name, _)| format!("{suite} {name}")));
    }
    Ok(found)
}

/// The variable by which cargo and nextest learn what to start test binaries with.
fn runner_variable() -> Result<String> {
    let text =
        read(Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV"))?;
    let host =
        text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    Ok(format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_are_read_from_cargos_messages_by_kind() {
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
    fn ignored_tests_are_found_in_nextests_list() {
        let list = r#"{"rust-suites":{
            "a::it":{"testcases":{"runs":{"ignored":false},"sleeps":{"ignored":true}}},
            "b":{"testcases":{}}}}"#;
        assert_eq!(ignored(list).unwrap(), ["a::it sleeps"]);
        assert!(ignored("{}").is_err());
    }

    #[test]
    fn an_empty_unprivileged_half_is_an_error() {
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
