//! Debian packages that commands of this tree need, as data with the reason for each.
//!
//! Nothing is installed that dpkg already has, and without root or off Debian nothing is
//! installed at all: then every program has to be there, or the caller is told what is missing.

use anyhow::{Context as _, Result, bail};

use crate::shell::{answer, program, run, uid, which};

/// One package, the program by which its presence shows, and why we want it.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) why: &'static str,
}

const fn package(name: &'static str, program: &'static str, why: &'static str) -> Package {
    Package { name, program, why }
}

/// What `cargo xtask test` needs beside a Rust toolchain.
pub(crate) const FOR_TESTS: &[Package] = &[
    package("bubblewrap", "bwrap", "an outer container for the tests of boxes within containers"),
    package("strace", "strace", "faults at chosen system calls, and the kill -9 at any moment"),
    package("gcc", "gcc", "compiled inside a box; linker of Rust"),
    package("g++", "g++", "compiled inside a box"),
    package("make", "make", "parallel builds inside a box"),
    package("git", "git", "workspaces that are repositories, worktrees and submodules"),
    package("python3", "python3", "run inside a box, and as scripted attacker"),
    package("nodejs", "node", "run inside a box"),
    package("perl", "perl", "run inside a box"),
    package("busybox-static", "busybox", "run inside a box, and all of a small root file system"),
    package("cmake", "cmake", "run inside a box"),
    package("default-jdk-headless", "javac", "run inside a box"),
    package("maven", "mvn", "run inside a box"),
    package("python3-venv", "python3", "run inside a box"),
    package("tcl", "tclsh", "run inside a box"),
    package("zsh", "zsh", "run inside a box, and reads its completions"),
    package("fish", "fish", "run inside a box, and reads its completions"),
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
    package("python3-pip", "pip3", "a client of a box's network; installs others for the tests"),
    package("dpkg", "dpkg-deb", "makes the package that apt finds in a box"),
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
    package("util-linux", "setpriv", "runs the unprivileged half; unshare, script"),
    package("procps", "ps", "run inside a box"),
    package("passwd", "useradd", "makes the user of the unprivileged half"),
];

/// Installs what is missing of `packages`.
pub(crate) fn install(packages: &[Package]) -> Result<()> {
    let missing: Vec<&Package> = packages.iter().filter(|package| !installed(package)).collect();
    if missing.is_empty() {
        println!("nothing to install: all {} packages are here", packages.len());
        return Ok(());
    }
    if uid()? != 0 || which("apt-get").is_none() {
        return settle_for_programs(&missing);
    }
    for package in &missing {
        println!("installing {}: {}", package.name, package.why);
    }
    run(program("apt-get").args(["update", "-qq"])).context("refresh the package lists")?;
    let names = missing.iter().map(|package| package.name);
    run(program("apt-get")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(names)
        .env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Without the right to install: good enough if the programs can be found.
fn settle_for_programs(missing: &[&Package]) -> Result<()> {
    let (here, absent): (Vec<&Package>, Vec<&Package>) =
        missing.iter().partition(|package| which(package.program).is_some());
    for package in here {
        println!(
            "{} is not a package of this system, but `{}` is here",
            package.name, package.program
        );
    }
    if absent.is_empty() {
        return Ok(());
    }
    let list: Vec<String> =
        absent.iter().map(|package| format!("\n  {}: {}", package.name, package.why)).collect();
    let names: Vec<&str> = absent.iter().map(|package| package.name).collect();
    bail!(
        "these are missing and only root on a Debian system can have them installed:{}\n\
         install them by hand (Debian: `apt-get install {}`) and try again",
        list.concat(),
        names.join(" ")
    );
}

fn installed(package: &Package) -> bool {
    let status = ["-W", "-f=${db:Status-Status}", package.name];
    answer(program("dpkg-query").args(status)).is_some_and(|status| status == "installed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_present_program_stands_in_for_its_package_and_an_absent_one_is_named() {
        let shell = package("dash-of-another-system", "sh", "a shell");
        settle_for_programs(&[&shell]).unwrap();
        let nothing = package("no-such-package", "no-such-program", "the test");
        let error = settle_for_programs(&[&shell, &nothing]).unwrap_err().to_string();
        assert!(error.contains("\n  no-such-package: the test\n"), "{error}");
        assert!(!error.contains("dash-of-another-system"), "{error}");
    }

    #[test]
    fn packages_are_named_once() {
        let mut names: Vec<_> = FOR_TESTS.iter().map(|package| package.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FOR_TESTS.len());
    }
}
