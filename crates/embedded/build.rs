//! Builds the static programs that run inside a box.
//!
//! The programs are crates of this workspace, built by a second cargo process. They are always linked
//! statically and have separate profiles, which a manifest cannot express in stable cargo.
//!
//! **Invariant:** the script runs again when a source file of any crate in these programs changes. The
//! list of crates comes from the manifests, so it includes new dependencies.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script reads variables from cargo and starts cargo"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The prefix of package names in this workspace; the rest of the name is the directory.
const PREFIX: &str = "belljar-";

const INIT: &str = "belljar-init";
const PROBE: &str = "belljar-probe";
const WORKER: &str = "belljar-worker";

fn main() {
    let build = Build {
        root: PathBuf::from(var("CARGO_MANIFEST_DIR")).join("../.."),
        out: PathBuf::from(var("OUT_DIR")),
        target: var("TARGET"),
    };
    build.watch(&[INIT, PROBE]);
    build.run("inside", &[INIT, PROBE]);
    if cfg!(feature = "worker") {
        build.worker();
    }
}

/// The paths and the target of this build.
struct Build {
    /// The root directory of the cargo workspace.
    root: PathBuf,
    out: PathBuf,
    target: String,
}

impl Build {
    /// Builds the worker, or copies the prebuilt worker that `BELLJAR_WORKER` names.
    fn worker(&self) {
        println!("cargo::rerun-if-env-changed=BELLJAR_WORKER");
        if let Some(built) = std::env::var_os("BELLJAR_WORKER").map(PathBuf::from) {
            println!("cargo::rerun-if-changed={}", built.display());
            return copy(&built, &self.out.join(WORKER));
        }
        self.watch(&[WORKER]);
        // A debug build should compile quickly; a release build should run fast.
        let profile = if var("PROFILE") == "release" { "worker" } else { "worker-dev" };
        self.run(profile, &[WORKER]);
    }

    /// Builds programs with one cargo profile and copies them to `OUT_DIR`, where `lib.rs` includes
    /// them.
    fn run(&self, profile: &str, programs: &[&str]) {
        let target_dir = self.out.join("inside");
        let mut cargo = Command::new(var("CARGO"));
        cargo
            .args(["build", "--bins", "--profile", profile, "--target", &self.target, "--locked"])
            .arg("--manifest-path")
            .arg(self.root.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target_dir)
            .env_remove("RUSTC_WORKSPACE_WRAPPER") // clippy's wrapper builds no programs
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static");
        for program in programs {
            cargo.args(["--package", program]);
        }
        let built = cargo.status().is_ok_and(|status| status.success());
        assert!(built, "cannot build the programs that run inside a box: {cargo:?}");
        let built_dir = target_dir.join(&self.target).join(profile);
        for program in programs {
            copy(&built_dir.join(program), &self.out.join(program));
        }
    }

    /// Tells cargo to run this script again when a source of these programs changes.
    fn watch(&self, programs: &[&str]) {
        for file in ["Cargo.toml", "Cargo.lock"] {
            println!("cargo::rerun-if-changed={}", self.root.join(file).display());
        }
        let mut crates: Vec<String> = programs.iter().map(|&program| program.to_owned()).collect();
        let mut seen = BTreeSet::new();
        while let Some(name) = crates.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let directory =
                name.strip_prefix(PREFIX).expect("only packages of this workspace are listed");
            let directory = self.root.join("crates").join(directory);
            let manifest = directory.join("Cargo.toml");
            // Cargo treats a missing path as changed.
            for path in [directory.join("src"), directory.join("build.rs"), manifest.clone()] {
                if path.exists() {
                    println!("cargo::rerun-if-changed={}", path.display());
                }
            }
            crates.extend(dependencies(&manifest));
        }
    }
}

/// Returns the packages of this workspace that a manifest names outside of its dev-dependencies.
fn dependencies(manifest: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(manifest)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", manifest.display()));
    let mut found = Vec::new();
    let mut for_tests = false;
    for line in text.lines() {
        if line.starts_with('[') {
            for_tests = line.contains("dev-dependencies");
        }
        if !for_tests {
            let words = line.split(|at: char| !at.is_ascii_alphanumeric() && at != '-');
            found.extend(words.filter(|word| word.starts_with(PREFIX)).map(str::to_owned));
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to)
        .unwrap_or_else(|error| panic!("cannot copy {}: {error}", from.display()));
}

fn var(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo did not set the variable {name}"))
}
