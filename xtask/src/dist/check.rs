//! Installs the packages in new root file systems of two distributions, uses them, and removes them. Also
//! attacks the installer: a changed byte, another signature and an old kernel are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::{Effort, packages};
use crate::packages::{self as debian, Package};
use crate::shell::{program, read, run, target_dir, uid};

/// Programs that create root file systems.
const NEEDED: &[Package] = &[
    Package { name: "mmdebstrap", program: "mmdebstrap", reason: "creates root file systems" },
    Package { name: "openssh-client", program: "ssh-keygen", reason: "signs and checks packages" },
    Package { name: "curl", program: "curl", reason: "downloads the keys of Ubuntu" },
];

/// A distribution whose root file system is created from its packages.
struct Distribution {
    name: &'static str,
    suite: &'static str,
    mirror: &'static str,
    keyring: Keyring,
    /// The script that installs, uses and removes Belljar in the new root.
    script: &'static str,
}

/// The public keys that sign the packages of a distribution.
enum Keyring {
    Installed(&'static str),
    /// A file of a package of the distribution, which is known by its hash.
    Package {
        path: &'static str,
        sha256: &'static str,
        file: &'static str,
    },
}

const DEBIAN: Distribution = Distribution {
    name: "debian",
    suite: "bookworm",
    mirror: "http://deb.debian.org/debian",
    keyring: Keyring::Installed("/usr/share/keyrings/debian-archive-keyring.gpg"),
    script: include_str!("check-deb.sh"),
};

const UBUNTU: Distribution = Distribution {
    name: "ubuntu",
    suite: "noble",
    mirror: "http://archive.ubuntu.com/ubuntu",
    keyring: Keyring::Package {
        path: "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb",
        sha256: "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
        file: "usr/share/keyrings/ubuntu-archive-keyring.gpg",
    },
    script: include_str!("check-tarball.sh"),
};

/// Packages `binary` with a new key, and checks the packages and the installer.
pub(crate) fn check(binary: &Path) -> Result<()> {
    ensure!(uid()? == 0, "the check of packages creates root file systems and needs root");
    debian::install(NEEDED)?;
    let work = target_dir()?.join("package-check");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    }
    fs::create_dir_all(&work)?;
    let key = new_key(&work, "key")?;
    let dir = packages(binary, Some(&key), Effort::Check)?;
    attack_installer(&dir, &work)?;
    for distribution in [&DEBIAN, &UBUNTU] {
        println!("{}: install, use and remove", distribution.name);
        in_new_root(distribution, &dir, &work)?;
    }
    fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))
}

/// Creates a key without a passphrase that signs only the packages of this check.
fn new_key(dir: &Path, name: &str) -> Result<PathBuf> {
    let key = dir.join(name);
    let quiet = ["-q", "-t", "ed25519", "-N", "", "-C", "check", "-f"];
    run(program("ssh-keygen").args(quiet).arg(&key))?;
    Ok(key)
}

/// Returns the tar archive of a minimal root file system, which is created once.
fn root_archive(of: &Distribution) -> Result<PathBuf> {
    let dir = target_dir()?.join("clients");
    fs::create_dir_all(&dir)?;
    let archive = dir.join(format!("{}-{}.tar", of.name, of.suite));
    if archive.exists() {
        return Ok(archive);
    }
    let new = archive.with_extension("new");
    run(program("mmdebstrap")
        .args([
            "--quiet",
            "--variant=essential",
            "--include=ca-certificates,mount,openssh-client",
            "--format=tar",
        ])
        .arg(format!("--keyring={}", keyring(of, &dir)?.display()))
        .arg(of.suite)
        .arg(&new)
        .arg(of.mirror))?;
    fs::rename(&new, &archive)?;
    Ok(archive)
}

/// Returns the file with the keys of a distribution.
fn keyring(of: &Distribution, dir: &Path) -> Result<PathBuf> {
    let (path, sha256, file) = match of.keyring {
        Keyring::Installed(file) => return Ok(file.into()),
        Keyring::Package { path, sha256, file } => (path, sha256, file),
    };
    let package = dir.join(format!("{}-keyring.deb", of.name));
    let address = format!("{}/{path}", of.mirror);
    run(program("curl").args(["-sSfL", "-o"]).arg(&package).arg(&address))?;
    let sum = read(program("sha256sum").arg(&package))?;
    ensure!(sum.starts_with(sha256), "the hash of {address} is wrong: {sum}");
    let tree = dir.join(format!("{}-keyring", of.name));
    run(program("dpkg-deb").arg("-x").args([&package, &tree]))?;
    Ok(tree.join(file))
}

/// Runs the script of a distribution in a new root file system. The root is entered with `pivot_root`,
/// because the kernel forbids user namespaces after `chroot`.
fn in_new_root(of: &Distribution, packages: &Path, work: &Path) -> Result<()> {
    let root = work.join(of.name);
    fs::create_dir(&root)?;
    run(program("tar").arg("--extract").arg("--file").arg(root_archive(of)?).arg("-C").arg(&root))?;
    let release = root.join("release");
    fs::create_dir(&release)?;
    for entry in fs::read_dir(packages)? {
        let entry = entry?;
        fs::copy(entry.path(), release.join(entry.file_name()))?;
    }
    fs::set_permissions(&release, fs::Permissions::from_mode(0o755))?;
    fs::write(root.join("check.sh"), of.script)?;
    fs::write(root.join("use.sh"), include_str!("check-use.sh"))?;
    let enter = "set -eu
        mount --make-rprivate /
        mount --bind \"$1\" \"$1\"
        mount --rbind /dev \"$1/dev\"
        mount --rbind /sys \"$1/sys\"
        mount -t proc proc \"$1/proc\"
        mount -t tmpfs -o mode=1777 tmpfs \"$1/tmp\"
        cd \"$1\"
        mkdir old
        pivot_root . old
        umount -l /old
        rmdir /old
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root sh -eu /check.sh";
    run(program("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, "sh"])
        .arg(&root))
    .with_context(|| format!("the packages do not work on {} {}", of.name, of.suite))
}

/// Runs the installer on changed releases, and on an old kernel. It must refuse each with its message.
fn attack_installer(release: &Path, work: &Path) -> Result<()> {
    let prefix = work.join("prefix");
    let copy = work.join("changed");
    let tarball = |dir: &Path| -> Result<PathBuf> {
        let mut files = fs::read_dir(dir)?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let is_tarball = |path: &PathBuf| path.extension().is_some_and(|end| end == "gz");
        files.find(is_tarball).context("the release has no tarball")
    };
    let other = new_key(work, "other")?;
    type Change<'a> = &'a dyn Fn(&Path) -> Result<()>;
    let attacks: [(&str, Change<'_>, &str); 5] = [
        (
            "one changed byte of the tarball",
            &|dir| flip_byte(&tarball(dir)?),
            "is wrong: the file is damaged or was changed",
        ),
        (
            "one changed byte of the hashes",
            &|dir| flip_byte(&dir.join("SHA256SUMS")),
            "the signature of SHA256SUMS is wrong",
        ),
        (
            "a signature by another key",
            &|dir| {
                fs::remove_file(dir.join("SHA256SUMS.sig"))?;
                let sign = ["-q", "-Y", "sign", "-n", "file", "-f"];
                run(program("ssh-keygen").args(sign).arg(&other).arg(dir.join("SHA256SUMS")))
            },
            "the signature of SHA256SUMS is wrong",
        ),
        (
            "a release without a signature",
            &|dir| Ok(fs::remove_file(dir.join("SHA256SUMS.sig"))?),
            "the release is not signed. Do not install it",
        ),
        (
            "a release without hashes",
            &|dir| Ok(fs::remove_file(dir.join("SHA256SUMS"))?),
            "has no SHA256SUMS",
        ),
    ];
    for (name, change, message) in attacks {
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        run(program("cp").arg("-r").arg(release).arg(&copy))?;
        change(&copy)?;
        // The installer of the original release: an attacker who replaces it needs no other change.
        let install = installer(release, &copy, &prefix);
        refused(name, install, message)?;
        ensure!(!prefix.exists(), "{name}: the installer wrote to {}", prefix.display());
    }
    let old = work.join("old-kernel");
    fs::create_dir(&old)?;
    let uname = old.join("uname");
    fs::write(
        &uname,
        "#!/bin/sh\n[ \"$1\" = -r ] && echo 5.10.0-8 || exec /usr/bin/uname \"$@\"\n",
    )?;
    fs::set_permissions(&uname, fs::Permissions::from_mode(0o755))?;
    let mut install = installer(release, release, &prefix);
    install.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", old.display()));
    refused("an old kernel", install, "needs Linux 5.13 or later; this is 5.10.0-8")?;
    // Control: the unchanged release is installed.
    run(&mut installer(release, release, &prefix))?;
    ensure!(prefix.join("bin/belljar").exists(), "the installer wrote no program");
    let listed = fs::read_to_string(prefix.join("share/belljar/installed"))?;
    listed.lines().try_for_each(fs::remove_file).context("the list of files is wrong")?;
    let left = read(program("find").arg(&prefix).args(["-type", "f"]))?;
    ensure!(left.is_empty(), "files are left after the removal: {left}");
    Ok(())
}

fn installer(release: &Path, from: &Path, prefix: &Path) -> Command {
    let mut command = program("sh");
    command.arg(release.join("install.sh")).arg("--from").arg(from).arg("--prefix").arg(prefix);
    command
}

fn refused(name: &str, mut command: Command, message: &str) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run the installer: {name}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(1) || !text.contains(message) {
        bail!("{name}: expected a refusal with {message:?}, got {} and {text:?}", output.status);
    }
    println!("refused: {name}");
    Ok(())
}

/// Changes the byte in the middle of a file.
fn flip_byte(file: &Path) -> Result<()> {
    let mut bytes = fs::read(file)?;
    let middle = bytes.len() / 2;
    *bytes.get_mut(middle).context("the file is empty")? ^= 1;
    fs::write(file, bytes)?;
    Ok(())
}
