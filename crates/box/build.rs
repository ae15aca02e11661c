//! Builds the static programs that go inside a box and leaves them where `embedded.rs` takes them from.
//!
//! They are crates of this workspace, built by a cargo of their own: they are static and optimised
//! for size whatever the rest is built for, and cargo has no stable way to say so in a manifest.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script talks to cargo by variables and starts it"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 2] = ["belljar-init", "belljar-probe"];

fn main() {
    let var = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let here = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(var("OUT_DIR"));
    let target = var("TARGET");
    for source in ["../init", "../probe", "../sys", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", here.join(source).display());
    }
    let mut cargo = Command::new(var("CARGO"));
    cargo
        .args(["build", "--profile", "inside", "--target", &target, "--locked"])
        .arg("--manifest-path")
        .arg(here.join("../../Cargo.toml"))
        .arg("--target-dir")
        .arg(out.join("inside"))
        .env_remove("RUSTC_WORKSPACE_WRAPPER") // clippy's, which builds nothing
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static");
    for program in PROGRAMS {
        cargo.args(["--package", program]);
    }
    let built = cargo.status().is_ok_and(|status| status.success());
    assert!(built, "the programs that go inside a box could not be built: {cargo:?}");
    for program in PROGRAMS {
        copy(&out.join("inside").join(&target).join("inside").join(program), &out.join(program));
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap_or_else(|error| panic!("copy {}: {error}", from.display()));
}
