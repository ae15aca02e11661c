//! `cargo xtask fuzz`: coverage-guided fuzzing of every parser of outside bytes.
//!
//! Needs a nightly toolchain (sanitizers) and `cargo-fuzz`, so it is a command of its own and no
//! part of `test`, which only replays the seeds (`crates/broker/tests/seeds.rs`). Inputs that reach new code are kept in `fuzz/corpus` from run to run.

use anyhow::{Context as _, Result, bail};

use crate::shell::{Args, program, root, run, succeeds, which};

const HELP: &str = "\
Throws bytes at the parsers of what comes from outside.

Usage: cargo xtask fuzz [TARGET] [--seconds 60]

  TARGET       one file of fuzz/fuzz_targets, without its ending; all of them if not given
  --seconds N  how long each target runs
";

/// More than a parser may use, less than a machine has.
const LIMIT: &str = "-rss_limit_mb=4096";

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(mut args) = Args::new(args, HELP) else { return Ok(()) };
    let seconds: u32 = match args.value("--seconds")? {
        Some(text) => text.parse().with_context(|| format!("`{text}` is no number of seconds"))?,
        None => 60,
    };
    let known = targets()?;
    let chosen = match args.word()? {
        Some(name) if known.contains(&name) => vec![name],
        Some(name) => bail!("no target `{name}`; there are {}", known.join(", ")),
        None => known,
    };
    prepare()?;
    for target in chosen {
        println!("\n=== fuzz {target} for {seconds} s");
        let limit = format!("-max_total_time={seconds}");
        // New findings go into the first directory; seeds are what we wrote by hand.
        let corpus = [format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}")];
        for dir in &corpus {
            std::fs::create_dir_all(root().join(dir)).with_context(|| format!("make {dir}"))?;
        }
        // A finding is written to fuzz/artifacts and makes this fail, with the bytes shown.
        run(nightly().args(["fuzz", "run", &target]).args(corpus).args(["--", &limit, LIMIT]))?;
    }
    Ok(())
}

fn targets() -> Result<Vec<String>> {
    let dir = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&dir).with_context(|| format!("read {}", dir.display()))? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort_unstable();
    Ok(names)
}

/// Cargo of the nightly toolchain. `cargo run` has put the pinned toolchain into the environment.
fn nightly() -> std::process::Command {
    let mut command = program("rustup");
    command.args(["run", "nightly", "cargo"]);
    for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR"] {
        command.env_remove(name);
    }
    command
}

fn prepare() -> Result<()> {
    if which("rustup").is_none() || !succeeds(nightly().arg("--version")) {
        bail!("fuzzing needs a nightly toolchain: `rustup toolchain install nightly`");
    }
    if !succeeds(nightly().args(["fuzz", "--version"])) {
        println!("installing cargo-fuzz from crates.io (once; about a minute)");
        run(nightly().args(["install", "cargo-fuzz", "--locked"]))?;
    }
    Ok(())
}
