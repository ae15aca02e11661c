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
            fs::read_to_string(thread.path().join("stat")).map_or(true, |stat| is_still(&stat))
        })
    })
}

/// The state behind the name in proc_pid_stat(5); the name may contain anything.
fn is_still(stat: &str) -> bool {
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_none_or(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_process_is_read_behind_its_name() {
        assert!(is_still("7 (sh) T 1 7"));
        assert!(is_still("7 (a) R (b) Z 1 7"));
        assert!(!is_still("7 (sh) S 1 7"));
        assert!(!is_still("7 () T ) R 1 7"));
        assert!(!is_still("7 (sh) D 1 7"));
    }
}
