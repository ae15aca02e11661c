//! The Debian package.

use std::path::Path;

use anyhow::{Result, bail};

use super::files::{self, Layout};
use super::{Effort, need};
use crate::shell::{program, run};

/// Loads the AppArmor profile where AppArmor is in use. Without it, Ubuntu denies user namespaces.
const AFTER_INSTALL: &str = "#!/bin/sh
set -e
if [ \"$1\" = configure ] && command -v apparmor_parser >/dev/null && [ -d /sys/kernel/security/apparmor ]; then
    apparmor_parser --replace --skip-cache /etc/apparmor.d/belljar ||
        echo 'belljar: cannot load /etc/apparmor.d/belljar; boxes of plain users may not start' >&2
fi
";

/// Unloads the AppArmor profile before its file is removed.
const BEFORE_REMOVAL: &str = "#!/bin/sh
set -e
if [ \"$1\" = remove ] && command -v apparmor_parser >/dev/null && [ -d /sys/kernel/security/apparmor ]; then
    apparmor_parser --remove /etc/apparmor.d/belljar || true
fi
";

/// Builds the package in `dir`, from files in `bundle`.
pub(super) fn build(
    binary: &Path,
    version: &str,
    (bundle, dir): (&Path, &Path),
    epoch: &str,
    effort: Effort,
) -> Result<()> {
    need("dpkg-deb")?;
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("there is no Debian package for the architecture {other}"),
    };
    let tree = bundle.join("deb");
    files::stage(binary, &tree, Layout::Debian)?;
    let size = std::fs::metadata(binary)?.len().div_ceil(1024);
    let control = format!(
        "Package: belljar
Version: {version}
Architecture: {architecture}
Maintainer: The Belljar maintainers <maintainers@belljar.invalid>
Installed-Size: {size}
Section: utils
Priority: optional
Depends: ca-certificates
Recommends: git
Suggests: apparmor, e2fsprogs, qemu-system-x86
Description: sandbox for AI agents and the code they write
 Runs programs in boxes that hostile code cannot leave. Changes wait for
 review, the network follows rules, credentials stay outside of the box, and
 a signed ledger records what happened.
"
    );
    files::write(&tree.join("DEBIAN/control"), &control)?;
    for (name, text) in [("postinst", AFTER_INSTALL), ("prerm", BEFORE_REMOVAL)] {
        let script = tree.join("DEBIAN").join(name);
        files::write(&script, text)?;
        files::set_mode(&script, 0o755)?;
    }
    let package = dir.join(format!("belljar_{version}_{architecture}.deb"));
    run(program("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", effort.level().replace('-', "-z").as_str(), "--build"])
        .args([&tree, &package])
        .env("SOURCE_DATE_EPOCH", epoch))
}
