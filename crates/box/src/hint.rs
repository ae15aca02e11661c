//! Advice for systems that forbid a feature that boxes need.

use std::io;
use std::path::Path;

/// Returns why user namespaces cannot be created, and how to allow them.
pub(crate) fn user_namespaces(error: &io::Error) -> String {
    let is = |path: &str, value: &str| {
        std::fs::read_to_string(Path::new(path)).is_ok_and(|content| content.trim() == value)
    };
    if is("/proc/sys/user/max_user_namespaces", "0") {
        return "user namespaces are disabled; to enable them, run `sysctl \
                user.max_user_namespaces=10000` as root"
            .to_owned();
    }
    if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        return "user namespaces are disabled for plain users; to enable them, run `sysctl \
                kernel.unprivileged_userns_clone=1` as root"
            .to_owned();
    }
    if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        return "AppArmor denies user namespaces to programs without a profile; as root, copy \
                `contrib/apparmor/belljar` to `/etc/apparmor.d/belljar` and run `apparmor_parser -r \
                /etc/apparmor.d/belljar`"
            .to_owned();
    }
    match error.raw_os_error() {
        Some(libc_enospc) if libc_enospc == rustix::io::Errno::NOSPC.raw_os_error() => {
            "too many user namespaces exist, or this program runs in a box without nested ones"
                .to_owned()
        }
        _ => "this user cannot create user namespaces on this system; inside a container, its \
              seccomp profile must allow clone3, mount and pivot_root"
            .to_owned(),
    }
}
