//! What is under way between the engine and the network, by number.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::runtime::http::{self, Incoming, Outgoing, Sender};

/// Exchanges that are open, and their bodies.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    last: Cell<u32>,
    incoming: RefCell<HashMap<u32, Incoming>>,
    /// Of requests that are not sent yet.
    outgoing: RefCell<HashMap<u32, Outgoing>>,
    senders: RefCell<HashMap<u32, Sender>>,
    ends: RefCell<HashMap<u32, Rc<Notify>>>,
}

impl Bodies {
    /// A number for an exchange, by which it can be closed.
    pub(super) fn open(&self) -> u32 {
        let id = self.last.get().wrapping_add(1);
        self.last.set(id);
        self.ends.borrow_mut().insert(id, Rc::new(Notify::new()));
        id
    }

    /// Tells when an exchange is closed.
    pub(super) fn end(&self, id: u32) -> Rc<Notify> {
        self.ends.borrow().get(&id).cloned().unwrap_or_else(|| {
            let over = Notify::new();
            over.notify_one();
            Rc::new(over)
        })
    }

    /// Ends an exchange wherever it is.
    pub(super) fn close(&self, id: u32) {
        if let Some(end) = self.ends.borrow_mut().remove(&id) {
            end.notify_one();
        }
        self.incoming.borrow_mut().remove(&id);
        self.outgoing.borrow_mut().remove(&id);
        self.senders.borrow_mut().remove(&id);
    }

    /// Keeps the body of an answer, unless its exchange was closed meanwhile.
    pub(super) fn keep(&self, id: u32, body: Incoming) {
        if self.ends.borrow().contains_key(&id) {
            self.incoming.borrow_mut().insert(id, body);
        }
    }

    /// To read on. Nobody else does until it is kept again.
    pub(super) fn take(&self, id: u32) -> Option<Incoming> {
        self.incoming.borrow_mut().remove(&id)
    }

    /// Makes the body of a request that comes piece by piece.
    pub(super) fn stream(&self, id: u32) {
        let (sender, body) = http::stream();
        self.senders.borrow_mut().insert(id, sender);
        self.outgoing.borrow_mut().insert(id, body);
    }

    /// What [`Self::stream`] made, once.
    pub(super) fn streamed(&self, id: u32) -> Option<Outgoing> {
        self.outgoing.borrow_mut().remove(&id)
    }

    pub(super) fn sender(&self, id: u32) -> Option<Sender> {
        self.senders.borrow().get(&id).cloned()
    }

    /// No more comes.
    pub(super) fn sent(&self, id: u32) -> Option<Sender> {
        self.senders.borrow_mut().remove(&id)
    }
}
