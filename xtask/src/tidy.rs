//! `cargo xtask tidy`: checks the rules of this repository that no compiler checks.
//!
//! Each rule is a function that takes the files of the repository (or the package list of cargo) and
//! returns a list of complaints. Rules do no I/O, so their tests need no files. Most rules check code
//! with comments and literals blanked out (see [`scan`]), so that they do not match their own text.

mod crates;
mod files;
mod language;
mod licences;
mod links;
mod lints;
mod modules;
mod scan;
mod threats;
mod tokio;
mod unsafe_list;

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::shell::{Args, cargo, program, read, root};

const HELP: &str = "\
Check the rules of this repository that no compiler checks.

Usage: cargo xtask tidy

  unsafe        unsafe code is only in crates/sys, and docs/unsafe.md lists every use
  files         files are short, forbid unsafe code, and have no todo!, #[ignore], #[allow] or local paths
  threats       every attack in docs/threat-model.md has its tests, and every attack test is listed there
  crates        crates depend only on the crates that they may use
  modules       modules of engine and belljar form no cycle, and those of engine keep their order
  lints         crates/engine has the lints of xtask/engine-clippy.toml and takes locks in one file only
  tokio         no crate enables a feature of tokio that the system call filter of the broker blocks
  licences      every package has a licence that deny.toml allows, and none is banned there
  links         relative links in the documents resolve
  language      test names do not start with a question word, and texts use no coined words
";

/// A text file of the repository: its path from the root, with `/`, and its content.
#[derive(Debug)]
struct File {
    path: String,
    text: String,
    /// The text with comments and literals blanked out; empty if the file is not Rust.
    code: String,
}

impl File {
    fn new(path: &str, text: String) -> Self {
        let code = if is_rust(path) { scan::code_only(&text) } else { String::new() };
        Self { path: path.to_owned(), text, code }
    }

    fn is_rust(&self) -> bool {
        is_rust(&self.path)
    }

    fn is_markdown(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|ext| ext == "md")
    }
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|ext| ext == "rs")
}

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(args) = Args::new(args, HELP) else { return Ok(()) };
    if let Some(extra) = args.positional()? {
        bail!("unexpected argument `{extra}`; use --help for the usage");
    }
    check(root())
}

/// Checks all rules and fails with a list of all complaints.
pub(crate) fn check(root: &Path) -> Result<()> {
    let files = repository_files(root)?;
    let metadata = read(cargo().args(["metadata", "--format-version=1", "--locked"]))?;
    let metadata: serde_json::Value =
        serde_json::from_str(&metadata).context("cannot parse the output of cargo metadata")?;
    let built = ["tree", "--workspace", "--locked", "--edges=all", "--prefix=none"];
    let built = read(cargo().args(built)).context("cannot list the packages that are built")?;
    let shipped =
        ["tree", "--workspace", "--locked", "--edges=no-dev", "--prefix=none", "--format={p} {f}"];
    let shipped = read(cargo().args(shipped))
        .context("cannot list the packages that are built without tests")?;
    let deny = std::fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;

    let mut complaints = Vec::new();
    complaints.extend(files::check(&files));
    complaints.extend(unsafe_list::check(&files));
    complaints.extend(threats::check(&files));
    complaints.extend(links::check(&files));
    complaints.extend(language::check(&files));
    complaints.extend(modules::check(&files));
    complaints.extend(lints::check(&files)?);
    complaints.extend(crates::check(&metadata)?);
    complaints.extend(tokio::check(&metadata, &shipped)?);
    complaints.extend(licences::check(&metadata, &deny, &built)?);
    if complaints.is_empty() {
        println!("tidy: {} files and all packages follow the rules", files.len());
        return Ok(());
    }
    bail!("{} violations of the rules:\n  {}", complaints.len(), complaints.join("\n  "));
}

/// Reads all text files that git tracks, and all untracked text files that it does not ignore.
fn repository_files(root: &Path) -> Result<Vec<File>> {
    let mut git = program("git");
    // Root may check a clone of another user. That is safe, because git only lists names here.
    git.args(["-c", "safe.directory=*", "ls-files", "-z"]);
    git.args(["--cached", "--others", "--exclude-standard"]).current_dir(root);
    let names = read(&mut git).context("cannot list the files of the repository")?;
    let mut files = Vec::new();
    for name in names.split_terminator('\0') {
        // A file that was deleted without a commit is still listed.
        let Ok(bytes) = std::fs::read(root.join(name)) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File::new(name, text));
        }
    }
    Ok(files)
}
