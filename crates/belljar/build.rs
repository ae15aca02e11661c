//! Builds the worker that goes inside boxes of code, and leaves it where `cell.rs` takes it from.
//!
//! It is a crate of this workspace, built by a cargo of its own: static whatever the rest is built for, and
//! cargo has no stable way to say so in a manifest.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script talks to cargo by variables and starts it"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "belljar-worker";

fn main() {
    let here = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    for source in ["../wire", "../worker/src", "../worker/Cargo.toml", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", here.join(source).display());
    }
    // Whoever packages Belljar may have built it elsewhere.
    println!("cargo::rerun-if-env-changed=BELLJAR_WORKER");
    if let Some(built) = std::env::var_os("BELLJAR_WORKER") {
        println!("cargo::rerun-if-changed={}", PathBuf::from(&built).display());
        return copy(&PathBuf::from(built), &PathBuf::from(var("OUT_DIR")).join(PROGRAM));
    }
    let (out, target) = (PathBuf::from(var("OUT_DIR")), var("TARGET"));
    // Whoever builds to look at something waits for the engine; whoever builds to use it has it fast.
    let profile = if var("PROFILE") == "release" { "worker" } else { "worker-dev" };
    let mut cargo = Command::new(var("CARGO"));
    cargo
        .args(["build", "--package", PROGRAM, "--bin", PROGRAM])
        .args(["--profile", profile, "--target", &target, "--locked"])
        .arg("--manifest-path")
        .arg(here.join("../../Cargo.toml"))
        .arg("--target-dir")
        .arg(out.join("inside"))
        .env_remove("RUSTC_WORKSPACE_WRAPPER") // clippy's, which builds nothing
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static");
    let built = cargo.status().is_ok_and(|status| status.success());
    assert!(built, "the worker that goes inside a box could not be built: {cargo:?}");
    let from = out.join("inside").join(&target).join(profile).join(PROGRAM);
    copy(&from, &out.join(PROGRAM));
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap_or_else(|error| panic!("copy {}: {error}", from.display()));
}

fn var(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
