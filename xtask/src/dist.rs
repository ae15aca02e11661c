//! `cargo xtask dist`: builds the packages of a release: a tarball, a Debian package and an installer.
//!
//! The binary is linked statically, so that the tarball works on every distribution. Two builds of one commit
//! give equal bytes: paths of the build are replaced, files have the time of the commit, and archives are
//! sorted.

mod check;
mod deb;
mod files;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::shell::{Args, cargo, program, read, root, run, target_dir, try_read, which};

pub(crate) use check::check;

const HELP: &str = "\
Put the packages of a release into target/bundle/packages: a tarball, a Debian package, an installer and
their hashes.

Usage: cargo xtask dist [--sign KEY] [--program FILE] [--check]

  --sign KEY      sign the hashes with this private SSH key; the installer then accepts only its signature
  --program FILE  package this binary instead of building one
  --check         also install the packages in new root file systems of Debian and Ubuntu, use and remove
                  them; needs root
";

/// The cargo profile of release binaries. Unlike `release`, it optimises across crates.
const PROFILE: &str = "dist";
/// The name by which the installer knows the signer.
const SIGNER: &str = "belljar";
/// The line of the installer that gets the public key of the signer.
const KEY_LINE: &str = "signer=''\n";

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(mut args) = Args::new(args, HELP) else { return Ok(()) };
    let sign = args.value("--sign")?.map(PathBuf::from);
    let binary = args.value("--program")?.map(PathBuf::from);
    let with_check = args.flag("--check");
    if let Some(extra) = args.positional()? {
        bail!("unexpected argument `{extra}`; use --help for the usage");
    }
    let binary = binary.map_or_else(static_binary, Ok)?;
    if with_check {
        check(&binary)?;
    }
    println!("{}", packages(&binary, sign.as_deref(), Effort::Release)?.display());
    Ok(())
}

/// How small the packages are made.
#[derive(Clone, Copy)]
enum Effort {
    /// As small as possible, which takes a minute.
    Release,
    /// As fast as possible, for packages that are only tested.
    Check,
}

impl Effort {
    /// Returns the option of gzip for the compression level.
    const fn level(self) -> &'static str {
        match self {
            Self::Release => "-9",
            Self::Check => "-1",
        }
    }
}

/// Creates the packages of a binary, and signs their hashes if a key is given. Returns their directory.
fn packages(binary: &Path, key: Option<&Path>, effort: Effort) -> Result<PathBuf> {
    // `target/dist` already is the output directory of the profile `dist`.
    let bundle = target_dir()?.join("bundle");
    if bundle.exists() {
        std::fs::remove_dir_all(&bundle)
            .with_context(|| format!("cannot remove {}", bundle.display()))?;
    }
    let dir = bundle.join("packages");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let epoch = epoch();
    let version = version(binary)?;
    let name = format!("belljar-{version}-{}-linux", std::env::consts::ARCH);
    let tree = bundle.join(&name);
    files::stage(binary, &tree, files::Layout::Tarball)?;
    let tarball = dir.join(format!("{name}.tar.gz"));
    pack(&tree, &tarball, &epoch, effort)?;
    deb::build(binary, &version, (&bundle, &dir), &epoch, effort)?;
    installer(&dir, key)?;
    hashes(&dir, key)?;
    Ok(dir)
}

/// Returns the version that a binary prints.
fn version(binary: &Path) -> Result<String> {
    let text = read(program(binary).arg("--version"))?;
    let version = text.trim().strip_prefix("belljar ").map(str::to_owned);
    version.with_context(|| format!("{} is not belljar: it prints {text:?}", binary.display()))
}

/// Returns the time of the commit in seconds, or 0 outside of a repository.
fn epoch() -> String {
    let time = try_read(program("git").args(["log", "-1", "--format=%ct"]));
    time.map_or_else(|| "0".to_owned(), |time| time.trim().to_owned())
}

/// Writes a directory to a compressed tar archive whose bytes depend only on names, modes and contents.
fn pack(tree: &Path, archive: &Path, epoch: &str, effort: Effort) -> Result<()> {
    let parent = tree.parent().context("the directory has no parent")?;
    let plain = archive.with_extension(""); // without `.gz`
    run(program("tar")
        .args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .args(["--format=gnu", &format!("--mtime=@{epoch}")])
        .arg("--file")
        .arg(&plain)
        .arg("--directory")
        .arg(parent)
        .arg(tree.file_name().context("the directory has no name")?))?;
    // `-n` leaves out the name and the time.
    run(program("gzip").args(["-n", effort.level(), "--force"]).arg(&plain))
}

/// Writes the installer. With a key, it accepts only packages that the owner of the key signed.
fn installer(dir: &Path, key: Option<&Path>) -> Result<()> {
    let text = include_str!("dist/install.sh");
    ensure!(text.contains(KEY_LINE), "the installer has no line for the key of the signer");
    let text = match key {
        None => text.to_owned(),
        Some(key) => {
            let public = read(program("ssh-keygen").arg("-y").arg("-f").arg(key))
                .context("cannot read the public key of --sign KEY")?;
            let mut parts = public.split_whitespace();
            let (kind, key) = (parts.next(), parts.next());
            let (kind, key) = kind.zip(key).context("the public key of --sign KEY is invalid")?;
            let line = format!("signer='{SIGNER} namespaces=\"file\" {kind} {key}'\n");
            text.replace(KEY_LINE, &line)
        }
    };
    let file = dir.join("install.sh");
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Writes the hashes of all files, and signs them if a key is given.
fn hashes(dir: &Path, key: Option<&Path>) -> Result<()> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        names.push(entry?.file_name());
    }
    names.sort();
    let sums = read(Command::new("sha256sum").args(&names).current_dir(dir))?;
    let file = dir.join("SHA256SUMS");
    std::fs::write(&file, sums).with_context(|| format!("cannot write {}", file.display()))?;
    let Some(key) = key else {
        println!("not signed: --sign KEY signs the packages");
        return Ok(());
    };
    run(program("ssh-keygen").args(["-Y", "sign", "-n", "file", "-f"]).arg(key).arg(&file))
        .context("cannot sign the hashes")
}

/// Builds the static binary of a release and returns its path.
fn static_binary() -> Result<PathBuf> {
    let host = read(program("rustc").args(["--print", "host-tuple"]))?;
    let host = host.trim();
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
        .context("cannot find the directory of cargo: CARGO_HOME and HOME are not set")?;
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    // The paths of this machine would make the bytes differ between two machines.
    let paths = [(root().display().to_string(), "/belljar"), (home, "/cargo")];
    flags.extend(paths.iter().map(|(path, to)| format!("--remap-path-prefix={path}={to}")));
    let c_flags: Vec<String> =
        paths.iter().map(|(path, to)| format!("-ffile-prefix-map={path}={to}")).collect();
    let target = target_dir()?.join("static");
    run(cargo()
        .args(["build", "--profile", PROFILE, "--locked", "--package", "belljar"])
        .args(["--target", host, "--target-dir"])
        .arg(&target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("CFLAGS", c_flags.join(" "))
        .env("SOURCE_DATE_EPOCH", epoch()))?;
    Ok(target.join(host).join(PROFILE).join("belljar"))
}

/// Builds the release binary for this machine and returns its path.
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

/// Fails if a program that creates packages is missing.
fn need(name: &str) -> Result<()> {
    ensure!(which(name).is_some(), "`{name}` is not installed; on Debian: apt-get install {name}");
    Ok(())
}
