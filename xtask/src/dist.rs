//! `cargo xtask dist`: what a packager takes: the binary, completions, man page, licence.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::shell::{Args, cargo, program, read, root, run, target_dir};

const HELP: &str = "\
The binary as it is shipped, completions and man page into target/bundle.

Usage: cargo xtask dist
";

/// Optimised across crates, which the profile `release` is not.
const PROFILE: &str = "dist";

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(args) = Args::new(args, HELP) else { return Ok(()) };
    if let Some(word) = args.word()? {
        bail!("did not expect `{word}`");
    }
    let belljar = shipped()?;
    // `target/dist` is where cargo builds the profile of this name.
    let bundle = target_dir()?.join("bundle");
    if bundle.exists() {
        std::fs::remove_dir_all(&bundle).with_context(|| format!("empty {}", bundle.display()))?;
    }
    std::fs::create_dir_all(bundle.join("completions"))?;
    std::fs::copy(&belljar, bundle.join("belljar"))?;
    for document in ["LICENSE", "README.md", "CHANGELOG.md"] {
        std::fs::copy(root().join(document), bundle.join(document))
            .with_context(|| format!("copy {document}"))?;
    }
    for shell in SHELLS {
        let text = read(program(&belljar).args(["completions", shell]))?;
        std::fs::write(bundle.join("completions").join(format!("belljar.{shell}")), text)?;
    }
    std::fs::write(bundle.join("belljar.1"), read(program(&belljar).arg("man"))?)?;
    println!("{}", bundle.display());
    Ok(())
}

/// Builds the binary as it is shipped, and says where it is.
pub(crate) fn shipped() -> Result<PathBuf> {
    build(&["--package", "belljar"])?;
    Ok(built()?.join("belljar"))
}

/// Builds a package or an example with the profile of what is shipped.
pub(crate) fn build(wanted: &[&str]) -> Result<()> {
    run(cargo().args(["build", "--profile", PROFILE, "--locked"]).args(wanted))
}

/// Where [`build`] leaves programs.
pub(crate) fn built() -> Result<PathBuf> {
    Ok(target_dir()?.join(PROFILE))
}
