//! Finds the processes of a box from the host, and checks whether they are stopped.

use std::fs;

/// Returns the ids of a process and all its descendants.
///
/// For init these are all processes of the box, since init adopts orphans.
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

/// Returns whether every thread of every descendant of `root` is stopped or has ended.
pub(crate) fn all_stopped_below(root: i32) -> bool {
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

/// Returns the process state in a line of proc_pid_stat(5). The name before it can contain any
/// character.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

/// Returns whether a line of proc_pid_syscall(5) is a call that creates a process, such as
/// vfork(2).
///
/// A thread that waits in vfork(2) cannot be stopped, but it does nothing until its child continues,
/// and the child can be stopped.
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
    fn process_state_is_parsed_after_a_name_with_parentheses() {
        assert_eq!(state("7 (sh) T 1 7"), Some('T'));
        assert_eq!(state("7 (a) R (b) Z 1 7"), Some('Z'));
        assert_eq!(state("7 () T ) R 1 7"), Some('R'));
        assert_eq!(state(""), None);
    }
}
