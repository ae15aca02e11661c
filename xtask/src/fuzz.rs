//! `cargo xtask fuzz`: coverage-guided fuzzing of every parser of untrusted input.
//!
//! Fuzzing needs a nightly toolchain (for sanitizers) and `cargo-fuzz`. It is therefore not part of
//! `cargo xtask test`, which only replays the seeds (`crates/broker/tests/seeds.rs`). Inputs that reach
//! new code are kept in `fuzz/corpus` for the next run.

use anyhow::{Context as _, Result, bail};

use crate::shell::{Args, program, root, run, succeeds, which};

const HELP: &str = "\
Fuzz the parsers of untrusted input.

Usage: cargo xtask fuzz [TARGET] [--seconds 60]

  TARGET       the name of a file in fuzz/fuzz_targets without .rs (default: all targets)
  --seconds N  the time for each target (default: 60)
";

/// The memory limit of the fuzzer.
const MEMORY_LIMIT: &str = "-rss_limit_mb=4096";

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(mut args) = Args::new(args, HELP) else { return Ok(()) };
    let seconds: u32 = match args.value("--seconds")? {
        Some(text) => {
            text.parse().with_context(|| format!("`{text}` is not a number of seconds"))?
        }
        None => 60,
    };
    let known = targets()?;
    let chosen = match args.positional()? {
        Some(name) if known.contains(&name) => vec![name],
        Some(name) => bail!("unknown target `{name}`; the targets are {}", known.join(", ")),
        None => known,
    };
    prepare()?;
    for target in chosen {
        println!("\n=== fuzz {target} for {seconds} s");
        let time_limit = format!("-max_total_time={seconds}");
        // The fuzzer writes new inputs to the first directory. The seeds in the second were written by hand.
        let corpus = [format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}")];
        for dir in &corpus {
            std::fs::create_dir_all(root().join(dir))
                .with_context(|| format!("cannot create {dir}"))?;
        }
        // A crash makes this command fail. Its input is printed and written to fuzz/artifacts.
        run(nightly().args(["fuzz", "run", &target]).args(corpus).args([
            "--",
            &time_limit,
            MEMORY_LIMIT,
        ]))?;
    }
    Ok(())
}

/// Returns the names of all fuzz targets.
fn targets() -> Result<Vec<String>> {
    let dir = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in
        std::fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?
    {
        let path = entry?.path();
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns a command for cargo of the nightly toolchain, without the variables of the pinned toolchain
/// that `cargo run` sets.
fn nightly() -> std::process::Command {
    let mut command = program("rustup");
    command.args(["run", "nightly", "cargo"]);
    for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR"] {
        command.env_remove(name);
    }
    command
}

/// Installs `cargo-fuzz` if it is missing. Fails if there is no nightly toolchain.
fn prepare() -> Result<()> {
    if which("rustup").is_none() || !succeeds(nightly().arg("--version")) {
        bail!(
            "fuzzing needs a nightly toolchain; install it with `rustup toolchain install nightly`"
        );
    }
    if !succeeds(nightly().args(["fuzz", "--version"])) {
        println!("installing cargo-fuzz from crates.io (once; about a minute)");
        run(nightly().args(["install", "cargo-fuzz", "--locked"]))?;
    }
    Ok(())
}
