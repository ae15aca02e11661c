//! `cargo xtask dist`: builds the files of a release: binary, completions, man page and licence.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::shell::{Args, cargo, program, read, root, run, target_dir};

const HELP: &str = "\
Put the release binary, completions and man page into target/bundle.

Usage: cargo xtask dist
";

/// The cargo profile of release binaries. Unlike `release`, it optimises across crates.
const PROFILE: &str = "dist";

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(args) = Args::new(args, HELP) else { return Ok(()) };
    if let Some(extra) = args.positional()? {
        bail!("unexpected argument `{extra}`; use --help for the usage");
    }
    let belljar = release_binary()?;
    // `target/dist` already is the output directory of the profile `dist`.
    let bundle = target_dir()?.join("bundle");
    if bundle.exists() {
        std::fs::remove_dir_all(&bundle)
            .with_context(|| format!("cannot remove {}", bundle.display()))?;
    }
    std::fs::create_dir_all(bundle.join("completions"))?;
    std::fs::copy(&belljar, bundle.join("belljar"))?;
    for document in ["LICENSE", "README.md", "CHANGELOG.md"] {
        std::fs::copy(root().join(document), bundle.join(document))
            .with_context(|| format!("cannot copy {document}"))?;
    }
    for shell in SHELLS {
        let text = read(program(&belljar).args(["completions", shell]))?;
        std::fs::write(bundle.join("completions").join(format!("belljar.{shell}")), text)?;
    }
    std::fs::write(bundle.join("belljar.1"), read(program(&belljar).arg("man"))?)?;
    println!("{}", bundle.display());
    Ok(())
}

/// Builds the release binary and returns its path.
pub(crate) fn release_binary() -> Result<PathBuf> {
    build(&["--package", "belljar"])?;
    Ok(output_dir()?.join("belljar"))
}

/// Builds a package or an example with the profile of release binaries.
pub(crate) fn build(args: &[&str]) -> Result<()> {
    run(cargo().args(["build", "--profile", PROFILE, "--locked"]).args(args))
}

/// Returns the directory in which [`build`] puts programs.
pub(crate) fn output_dir() -> Result<PathBuf> {
    Ok(target_dir()?.join(PROFILE))
}
