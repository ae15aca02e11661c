//! Checks the order of locks, in builds with debug assertions only: tests and local builds.
//!
//! The check is per thread. Different threads may hold any locks.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use super::Rank;

/// An entry in the list of held locks. Dropping it on any thread removes it from the list.
#[derive(Debug)]
pub(super) struct HeldEntry(Option<u64>);

/// All locks that this process holds or waits for.
#[derive(Debug)]
struct Locks {
    next: u64,
    held: Vec<Lock>,
}

/// One lock that a thread holds or waits for.
#[derive(Debug)]
struct Lock {
    number: u64,
    thread: ThreadId,
    rank: Rank,
    path: PathBuf,
}

static LOCKS: Mutex<Locks> = Mutex::new(Locks { next: 0, held: Vec::new() });

/// Registers that this thread is about to wait for a lock.
///
/// Panics if the thread already holds this lock or a lock of a later rank.
#[track_caller]
pub(super) fn enter(rank: Rank, path: &Path) -> HeldEntry {
    if !cfg!(debug_assertions) {
        return HeldEntry(None);
    }
    let thread = std::thread::current().id();
    let mut locks = locks();
    let mut held_by_thread = locks.held.iter().filter(|lock| lock.thread == thread);
    let later = held_by_thread.find(|lock| (lock.rank, lock.path.as_path()) >= (rank, path));
    let later = later.map(|lock| (lock.rank, lock.path.clone()));
    if let Some((held, held_path)) = later {
        drop(locks);
        panic!(
            "wrong order of locks: cannot wait for {rank:?} {} while {held:?} {} is held",
            path.display(),
            held_path.display()
        );
    }
    let number = locks.next;
    locks.next += 1;
    locks.held.push(Lock { number, thread, rank, path: path.to_owned() });
    HeldEntry(Some(number))
}

impl Drop for HeldEntry {
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

    /// Registers locks one after the other. Returns the message of the panic, if there is one.
    fn enter_all(wanted: &[(Rank, &str)]) -> Option<String> {
        let entered = catch_unwind(|| {
            let entries = wanted.iter().map(|(rank, path)| enter(*rank, Path::new(path)));
            entries.collect::<Vec<_>>().len()
        });
        entered.err().map(|panic| *panic.downcast::<String>().unwrap())
    }

    #[test]
    fn lock_order_check_accepts_locks_in_the_order_of_their_ranks() {
        assert_eq!(enter_all(&RANKS.map(|rank| (rank, "a"))), None);
        assert_eq!(enter_all(&[(Rank::Box, "a"), (Rank::Box, "b"), (Rank::Ledger, "a")]), None);
    }

    #[test]
    fn lock_order_check_panics_for_an_earlier_rank_or_the_same_lock() {
        for (at, later) in RANKS.iter().enumerate() {
            for earlier in &RANKS[..=at] {
                let message = enter_all(&[(*later, "held"), (*earlier, "held")]).unwrap();
                let expected =
                    format!("cannot wait for {earlier:?} held while {later:?} held is held");
                assert!(message.contains(&expected), "{message}");
            }
        }
        assert!(
            enter_all(&[(Rank::Box, "b"), (Rank::Box, "a")]).is_some(),
            "two boxes must be locked in the order of their paths"
        );
    }

    #[test]
    fn lock_order_check_forgets_a_lock_that_another_thread_dropped() {
        let entry = enter(Rank::Ledger, Path::new("a"));
        assert!(enter_all(&[(Rank::Box, "a")]).is_some(), "control: the lock is held");
        std::thread::scope(|scope| drop(scope.spawn(|| drop(entry))));
        assert_eq!(enter_all(&[(Rank::Box, "a")]), None);
    }

    #[test]
    fn lock_order_check_ignores_locks_of_other_threads() {
        let _entry = enter(Rank::Ledger, Path::new("a"));
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(enter_all(&[(Rank::Box, "a")]), None));
        });
    }
}
