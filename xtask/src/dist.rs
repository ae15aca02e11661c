//! `cargo xtask dist`: what a packager takes: the release binary, completions, man page, licence.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::shell::{Args, cargo, program, read, root, run, target_dir};

const HELP: &str = "\
Release build, completions and man page into target/dist.

Usage: cargo xtask dist
";

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(args) = Args::new(args, HELP) else { return Ok(()) };
    if let Some(word) = args.word()? {
        bail!("did not expect `{word}`");
    }
    let belljar = release()?;
    let dist = target_dir()?.join("dist");
    if dist.exists() {
        std::fs::remove_dir_all(&dist).with_context(|| format!("empty {}", dist.display()))?;
    }
    std::fs::create_dir_all(dist.join("completions"))?;
    std::fs::copy(&belljar, dist.join("belljar"))?;
    for document in ["LICENSE", "README.md", "CHANGELOG.md"] {
        std::fs::copy(root().join(document), dist.join(document))
            .with_context(|| format!("copy {document}"))?;
    }
    for shell in SHELLS {
        let text = read(program(&belljar).args(["completions", shell]))?;
        std::fs::write(dist.join("completions").join(format!("belljar.{shell}")), text)?;
    }
    std::fs::write(dist.join("belljar.1"), read(program(&belljar).arg("man"))?)?;
    println!("{}", dist.display());
    Ok(())
}

/// Builds the binary as it is shipped, and says where it is.
pub(crate) fn release() -> Result<PathBuf> {
    run(cargo().args(["build", "--release", "--locked", "--package", "belljar"]))?;
    Ok(target_dir()?.join("release/belljar"))
}
