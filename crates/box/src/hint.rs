//! What to do when the system forbids what a box needs, in the words of that system.

use std::io;
use std::path::Path;

/// Why user namespaces are not to be had, and the remedy.
pub(crate) fn user_namespaces(error: &io::Error) -> String {
    let is = |path: &str, value: &str| {
        std::fs::read_to_string(Path::new(path)).is_ok_and(|content| content.trim() == value)
    };
    if is("/proc/sys/user/max_user_namespaces", "0") {
        return "user namespaces are switched off: `sysctl user.max_user_namespaces=10000` as root \
                switches them on"
            .to_owned();
    }
    if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        return "this kernel keeps user namespaces from plain users: `sysctl \
                kernel.unprivileged_userns_clone=1` as root allows them"
            .to_owned();
    }
    if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        return "AppArmor keeps user namespaces from programs without a profile: as root, copy \
                `contrib/apparmor/belljar` to `/etc/apparmor.d/belljar` and run `apparmor_parser -r \
                /etc/apparmor.d/belljar`"
            .to_owned();
    }
    match error.raw_os_error() {
        Some(libc_enospc) if libc_enospc == rustix::io::Errno::NOSPC.raw_os_error() => {
            "too many user namespaces exist already, or this is a box that forbids nested ones"
                .to_owned()
        }
        _ => "this system does not let this user make user namespaces; inside a container, its \
              seccomp profile must allow clone3, mount and pivot_root"
            .to_owned(),
    }
}
