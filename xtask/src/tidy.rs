//! `cargo xtask tidy`: the rules of this tree that no compiler checks.
//!
//! Each rule is a function from the files (or from cargo's view of the packages) to a list of
//! complaints; it reads nothing by itself, so its tests are plain. Rules look at code with comments
//! and literals blanked out (see [`scan`]), so a rule cannot trip over its own text.

mod crates;
mod files;
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
The rules of this tree that no compiler checks.

Usage: cargo xtask tidy

  unsafe        only in crates/sys, and there every use is listed in docs/unsafe.md
  files         length, `forbid(unsafe_code)`, no todo!, no #[ignore], no #[allow], no paths of a machine
  threats       the table of docs/threat-model.md and the tests named by threat id agree
  crates        who may depend on whom
  modules       no cycle between modules of engine and of belljar, and engine's in their order
  lints         crates/engine has the lints of xtask/engine-clippy.toml, turns none off, and locks in one file
  tokio         no feature of tokio that the broker cannot bear
  licences      every locked package within deny.toml; nothing from its ban list
  links         relative links in the documents resolve
";

/// One file of the tree: its path from the top, with `/`, and its text.
#[derive(Debug)]
struct File {
    path: String,
    text: String,
    /// The text with comments and literals blanked; empty for what is not Rust.
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
    if let Some(word) = args.word()? {
        bail!("did not expect `{word}`");
    }
    check(root())
}

/// Applies every rule and fails with all complaints at once.
pub(crate) fn check(root: &Path) -> Result<()> {
    let files = tree(root)?;
    let metadata = read(cargo().args(["metadata", "--format-version=1", "--locked"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    let everything = ["tree", "--workspace", "--locked", "--edges=all", "--prefix=none"];
    let built = read(cargo().args(everything)).context("list what is built")?;
    let shipped =
        ["tree", "--workspace", "--locked", "--edges=no-dev", "--prefix=none", "--format={p} {f}"];
    let shipped = read(cargo().args(shipped)).context("list what is built without tests")?;
    let deny = std::fs::read_to_string(root.join("deny.toml")).context("read deny.toml")?;

    let mut complaints = Vec::new();
    complaints.extend(files::check(&files));
    complaints.extend(unsafe_list::check(&files));
    complaints.extend(threats::check(&files));
    complaints.extend(links::check(&files));
    complaints.extend(modules::check(&files));
    complaints.extend(lints::check(&files)?);
    complaints.extend(crates::check(&metadata)?);
    complaints.extend(tokio::check(&metadata, &shipped)?);
    complaints.extend(licences::check(&metadata, &deny, &built)?);
    if complaints.is_empty() {
        println!("tidy: {} files and their packages are in order", files.len());
        return Ok(());
    }
    bail!("not in order ({}):\n  {}", complaints.len(), complaints.join("\n  "));
}

/// What git tracks here, and what it would if it were added. Binary files have no text to check.
fn tree(root: &Path) -> Result<Vec<File>> {
    let mut git = program("git");
    // Root checks a tree that another user cloned; only names are listed, so that is no danger.
    git.args(["-c", "safe.directory=*", "ls-files", "-z"]);
    git.args(["--cached", "--others", "--exclude-standard"]).current_dir(root);
    let names = read(&mut git).context("list the tree")?;
    let mut files = Vec::new();
    for name in names.split_terminator('\0') {
        // A file that is deleted but not yet committed is still listed.
        let Ok(bytes) = std::fs::read(root.join(name)) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File::new(name, text));
        }
    }
    Ok(files)
}
