//! Counts what a program still waits for, so that it does not end before.

use std::cell::Cell;
use std::rc::Rc;

/// How many things are under way that hold the program.
#[derive(Clone, Debug, Default)]
pub struct Alive(Rc<Cell<usize>>);

/// One of them, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Held(Rc<Cell<usize>>);

impl Alive {
    pub fn hold(&self) -> Held {
        self.0.set(self.0.get() + 1);
        Held(Rc::clone(&self.0))
    }

    pub fn is_held(&self) -> bool {
        self.0.get() > 0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
