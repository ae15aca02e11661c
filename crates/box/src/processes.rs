//! The processes of a box, seen from the host.

use std::fs;

/// A process and all below it. For init that is the whole box, since orphans become its children.
pub(crate) fn descendants(root: i32) -> Vec<i32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    found
}

/// Whether every thread of all processes below `root` is stopped, or is over.
pub(crate) fn stand_still_below(root: i32) -> bool {
    descendants(root).into_iter().filter(|pid| *pid != root).all(|pid| {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
        threads.flatten().all(|thread| {
            let read = |file: &str| fs::read_to_string(thread.path().join(file));
            let Ok(stat) = read("stat") else { return true };
            match state(&stat) {
                Some('T' | 't' | 'Z' | 'X') | None => true,
                Some('D') => read("syscall").is_ok_and(|call| is_fork(&call)),
                Some(_) => false,
            }
        })
    })
}

/// The state behind the name in proc_pid_stat(5); the name may contain anything.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

/// Whether a thread that waits in this call, as proc_pid_syscall(5) tells it, waits for its child to
/// execute a program: vfork(2). It cannot be stopped there, and does nothing until its child, which can
/// be, goes on.
fn is_fork(call: &str) -> bool {
    let forks: &[&str] = match std::env::consts::ARCH {
        "x86_64" => &["56", "57", "58", "435"],
        "aarch64" => &["220", "435"],
        _ => &[],
    };
    call.split_whitespace().next().is_some_and(|number| forks.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_process_is_read_behind_its_name() {
        assert_eq!(state("7 (sh) T 1 7"), Some('T'));
        assert_eq!(state("7 (a) R (b) Z 1 7"), Some('Z'));
        assert_eq!(state("7 () T ) R 1 7"), Some('R'));
        assert_eq!(state(""), None);
    }
}
