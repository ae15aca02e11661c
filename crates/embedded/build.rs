//! Builds the static programs that run inside a box.
//!
//! They are crates of this workspace, built by a second cargo. They are static and have profiles of
//! their own whatever the rest is built for, and cargo has no stable way to say so in a manifest.
//!
//! **Invariant:** the script runs again when a source file of any crate in these programs changes. The
//! list of crates comes from the manifests, so a new dependency cannot be forgotten here.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script talks to cargo by variables and starts it"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All our packages have this in front of the name of their directory.
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

struct Build {
    /// The top of the workspace.
    root: PathBuf,
    out: PathBuf,
    target: String,
}

impl Build {
    /// Builds the worker, or takes the one that a packager has built before.
    fn worker(&self) {
        println!("cargo::rerun-if-env-changed=BELLJAR_WORKER");
        if let Some(built) = std::env::var_os("BELLJAR_WORKER").map(PathBuf::from) {
            println!("cargo::rerun-if-changed={}", built.display());
            return copy(&built, &self.out.join(WORKER));
        }
        self.watch(&[WORKER]);
        // A debug build should be ready soon; a release build should run fast.
        let profile = if var("PROFILE") == "release" { "worker" } else { "worker-dev" };
        self.run(profile, &[WORKER]);
    }

    /// Builds programs with one profile and copies them to where `lib.rs` includes them from.
    fn run(&self, profile: &str, programs: &[&str]) {
        let target_dir = self.out.join("inside");
        let mut cargo = Command::new(var("CARGO"));
        cargo
            .args(["build", "--bins", "--profile", profile, "--target", &self.target, "--locked"])
            .arg("--manifest-path")
            .arg(self.root.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target_dir)
            .env_remove("RUSTC_WORKSPACE_WRAPPER") // clippy's, which builds nothing
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static");
        for program in programs {
            cargo.args(["--package", program]);
        }
        let built = cargo.status().is_ok_and(|status| status.success());
        assert!(built, "the programs that run inside a box could not be built: {cargo:?}");
        let made = target_dir.join(&self.target).join(profile);
        for program in programs {
            copy(&made.join(program), &self.out.join(program));
        }
    }

    /// Has cargo run this script again when something changes that these programs are built from.
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
            let directory = name.strip_prefix(PREFIX).expect("only names of ours are listed");
            let directory = self.root.join("crates").join(directory);
            let manifest = directory.join("Cargo.toml");
            // Cargo takes a path that does not exist for one that changed.
            for path in [directory.join("src"), directory.join("build.rs"), manifest.clone()] {
                if path.exists() {
                    println!("cargo::rerun-if-changed={}", path.display());
                }
            }
            crates.extend(named(&manifest));
        }
    }
}

/// Every crate of ours that a manifest names, except for its tests.
fn named(manifest: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(manifest)
        .unwrap_or_else(|error| panic!("read {}: {error}", manifest.display()));
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
    std::fs::copy(from, to).unwrap_or_else(|error| panic!("copy {}: {error}", from.display()));
}

fn var(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
