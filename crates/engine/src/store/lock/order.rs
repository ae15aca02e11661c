//! Checks the order of locks, in builds with debug assertions only: tests and local builds.
//!
//! The check is per thread. Two threads may hold any two locks; one of them would wait, and the other
//! one goes on.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use super::Rank;

/// Removes a lock from the list of held ones when it is dropped, on whichever thread that is.
#[derive(Debug)]
pub(super) struct Entry(Option<u64>);

#[derive(Debug)]
struct Locks {
    next: u64,
    held: Vec<Lock>,
}

#[derive(Debug)]
struct Lock {
    number: u64,
    thread: ThreadId,
    rank: Rank,
    path: PathBuf,
}

static LOCKS: Mutex<Locks> = Mutex::new(Locks { next: 0, held: Vec::new() });

/// Says that this thread is about to wait for a lock. Panics if the thread holds the same or a later
/// one.
#[track_caller]
pub(super) fn enter(rank: Rank, path: &Path) -> Entry {
    if !cfg!(debug_assertions) {
        return Entry(None);
    }
    let thread = std::thread::current().id();
    let mut locks = locks();
    let mut own = locks.held.iter().filter(|lock| lock.thread == thread);
    let later = own.find(|lock| (lock.rank, lock.path.as_path()) >= (rank, path));
    let later = later.map(|lock| (lock.rank, lock.path.clone()));
    if let Some((held, held_path)) = later {
        drop(locks);
        panic!(
            "order of locks: {rank:?} {} is waited for while {held:?} {} is held",
            path.display(),
            held_path.display()
        );
    }
    let number = locks.next;
    locks.next += 1;
    locks.held.push(Lock { number, thread, rank, path: path.to_owned() });
    Entry(Some(number))
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            locks().held.retain(|lock| lock.number != number);
        }
    }
}

fn locks() -> MutexGuard<'static, Locks> {
    LOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    const RANKS: [Rank; 4] = [Rank::Box, Rank::Review, Rank::Directory, Rank::Ledger];

    /// Takes locks one behind the other; the message of the panic, if one is out of order.
    fn take(wanted: &[(Rank, &str)]) -> Option<String> {
        let taken = catch_unwind(|| {
            let taken = wanted.iter().map(|(rank, path)| enter(*rank, Path::new(path)));
            taken.collect::<Vec<_>>().len()
        });
        taken.err().map(|panic| *panic.downcast::<String>().unwrap())
    }

    #[test]
    fn locks_in_the_order_of_their_ranks_are_allowed() {
        assert_eq!(take(&RANKS.map(|rank| (rank, "a"))), None);
        assert_eq!(take(&[(Rank::Box, "a"), (Rank::Box, "b"), (Rank::Ledger, "a")]), None);
    }

    #[test]
    fn lock_of_an_earlier_rank_or_the_same_lock_panics_and_names_both() {
        for (at, later) in RANKS.iter().enumerate() {
            for earlier in &RANKS[..=at] {
                let said = take(&[(*later, "held"), (*earlier, "held")]).unwrap();
                let expected =
                    format!("{earlier:?} held is waited for while {later:?} held is held");
                assert!(said.contains(&expected), "{said}");
            }
        }
        assert!(take(&[(Rank::Box, "b"), (Rank::Box, "a")]).is_some(), "boxes by their paths");
    }

    #[test]
    fn lock_that_was_dropped_on_another_thread_is_no_longer_held() {
        let entry = enter(Rank::Ledger, Path::new("a"));
        assert!(take(&[(Rank::Box, "a")]).is_some(), "control: it is held");
        std::thread::scope(|scope| drop(scope.spawn(|| drop(entry))));
        assert_eq!(take(&[(Rank::Box, "a")]), None);
    }

    #[test]
    fn locks_of_other_threads_do_not_count() {
        let _entry = enter(Rank::Ledger, Path::new("a"));
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(take(&[(Rank::Box, "a")]), None));
        });
    }
}
