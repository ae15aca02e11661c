//! Counts the pending operations that keep a program running.

use std::cell::Cell;
use std::rc::Rc;

/// The number of pending operations that keep the program running. A program ends when the number
/// is zero.
#[derive(Clone, Debug, Default)]
pub struct KeepAlive(Rc<Cell<usize>>);

/// The guard of one pending operation; dropping it ends the operation. Dropping the guard ends the
/// operation.
#[derive(Debug)]
#[must_use]
pub struct KeepAliveGuard(Rc<Cell<usize>>);

impl KeepAlive {
    /// Registers a pending operation, which keeps the program running until the guard is dropped.
    pub fn hold(&self) -> KeepAliveGuard {
        self.0.set(self.0.get() + 1);
        KeepAliveGuard(Rc::clone(&self.0))
    }

    /// Returns whether any operation is pending.
    pub fn is_held(&self) -> bool {
        self.0.get() > 0
    }
}

impl Drop for KeepAliveGuard {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
