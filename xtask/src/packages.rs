//! Lists and installs the Debian packages that commands of xtask need, with the reason for each.
//!
//! Packages that are already installed are skipped. Without root, or on another system than Debian, no
//! package is installed. Then every program must exist, or the error lists the missing packages.

use anyhow::{Context as _, Result, bail};

use crate::shell::{program, run, try_read, uid, which};

/// A Debian package, one of its programs, and the reason why it is needed.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) reason: &'static str,
}

const fn package(name: &'static str, program: &'static str, reason: &'static str) -> Package {
    Package { name, program, reason }
}

/// Packages that `cargo xtask test` needs in addition to a Rust toolchain.
pub(crate) const FOR_TESTS: &[Package] = &[
    package("bubblewrap", "bwrap", "an outer container for the tests of boxes within containers"),
    package("strace", "strace", "injects faults and kills at chosen system calls"),
    package("gcc", "gcc", "compiled inside a box; linker of Rust"),
    package("g++", "g++", "compiled inside a box"),
    package("make", "make", "parallel builds inside a box"),
    package("git", "git", "workspaces that are repositories, worktrees and submodules"),
    package("python3", "python3", "run inside a box, and runs scripted attacks"),
    package("nodejs", "node", "run inside a box"),
    package("perl", "perl", "run inside a box"),
    package(
        "busybox-static",
        "busybox",
        "run inside a box, and the only program of a small root file system",
    ),
    package("cmake", "cmake", "run inside a box"),
    package("default-jdk-headless", "javac", "run inside a box"),
    package("maven", "mvn", "run inside a box"),
    package("python3-venv", "python3", "run inside a box"),
    package("tcl", "tclsh", "run inside a box"),
    package("zsh", "zsh", "run inside a box, and tests its completions"),
    package("fish", "fish", "run inside a box, and tests its completions"),
    package("tmux", "tmux", "run inside a box"),
    package("gpg", "gpg", "run inside a box"),
    package("gpg-agent", "gpg-agent", "run inside a box"),
    package("openssl", "openssl", "run inside a box"),
    package("ca-certificates", "update-ca-certificates", "seen inside a box"),
    package("curl", "curl", "run inside a box"),
    package("wget", "wget", "a client of a box's network"),
    package("golang-go", "go", "a client of a box's network: downloads modules"),
    package("ruby", "ruby", "a client of a box's network"),
    package("liblwp-protocol-https-perl", "perl", "a client of a box's network: LWP with TLS"),
    package("python3-pip", "pip3", "a client of a box's network; installs other clients"),
    package("dpkg", "dpkg-deb", "builds the package that apt installs in a box"),
    package("socat", "socat", "run inside a box"),
    package("sqlite3", "sqlite3", "run inside a box"),
    package("vim", "vim", "run inside a box"),
    package("less", "less", "run inside a box"),
    package("man-db", "man", "renders the manual page"),
    package("jq", "jq", "run inside a box"),
    package("bc", "bc", "run inside a box"),
    package("file", "file", "run inside a box"),
    package("xz-utils", "xz", "run inside a box"),
    package("zstd", "zstd", "run inside a box"),
    package("zip", "zip", "run inside a box"),
    package("unzip", "unzip", "run inside a box"),
    package("hostname", "hostname", "run inside a box"),
    package("util-linux", "setpriv", "runs tests as a plain user; also unshare and script"),
    package("procps", "ps", "run inside a box"),
    package("passwd", "useradd", "creates the plain user for tests"),
    package("mount", "mount", "mounts the disks whose power fails in tests"),
    package("e2fsprogs", "mkfs.ext4", "a disk whose power fails in a test"),
    package("xfsprogs", "mkfs.xfs", "a disk whose power fails in a test, and copies of disks"),
    package("chromium", "chromium", "the browser of people who use the server"),
    package("slowhttptest", "slowhttptest", "a slow client of the server"),
    package("testssl.sh", "testssl", "searches the server for weak TLS"),
    package("btrfs-progs", "mkfs.btrfs", "a disk whose power fails in a test"),
];

/// Installs the packages that are not installed yet.
pub(crate) fn install(packages: &[Package]) -> Result<()> {
    let missing: Vec<&Package> = packages.iter().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        println!("all {} packages are already installed", packages.len());
        return Ok(());
    }
    if uid()? != 0 || which("apt-get").is_none() {
        return check_programs(&missing);
    }
    for package in &missing {
        println!("installing {}: {}", package.name, package.reason);
    }
    run(program("apt-get").args(["update", "-qq"])).context("cannot update the package lists")?;
    let names = missing.iter().map(|package| package.name);
    run(program("apt-get")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(names)
        .env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Checks that the programs of packages exist, if the packages cannot be installed.
fn check_programs(missing: &[&Package]) -> Result<()> {
    let (existing, absent): (Vec<&Package>, Vec<&Package>) =
        missing.iter().partition(|package| which(package.program).is_some());
    for package in existing {
        println!(
            "package {} is not installed, but its program `{}` exists",
            package.name, package.program
        );
    }
    if absent.is_empty() {
        return Ok(());
    }
    let list: Vec<String> =
        absent.iter().map(|package| format!("\n  {}: {}", package.name, package.reason)).collect();
    let names: Vec<&str> = absent.iter().map(|package| package.name).collect();
    bail!(
        "these packages are missing, and only root on Debian can install them here:{}\n\
         install them (Debian: `apt-get install {}`) and try again",
        list.concat(),
        names.join(" ")
    );
}

fn is_installed(package: &Package) -> bool {
    let status = ["-W", "-f=${db:Status-Status}", package.name];
    try_read(program("dpkg-query").args(status)).is_some_and(|status| status == "installed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_programs_accepts_existing_programs_and_names_missing_packages() {
        let shell = package("dash-of-another-system", "sh", "a shell");
        check_programs(&[&shell]).unwrap();
        let missing = package("no-such-package", "no-such-program", "the test");
        let error = check_programs(&[&shell, &missing]).unwrap_err().to_string();
        assert!(error.contains("\n  no-such-package: the test\n"), "{error}");
        assert!(!error.contains("dash-of-another-system"), "{error}");
    }

    #[test]
    fn every_package_is_listed_once() {
        let mut names: Vec<_> = FOR_TESTS.iter().map(|package| package.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FOR_TESTS.len());
    }
}
