//! The pending HTTP exchanges of a program, by id.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::runtime::http::{self, RequestBody, ResponseBody, Sender};

/// The open HTTP exchanges and their bodies.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    last: Cell<u32>,
    incoming: RefCell<HashMap<u32, ResponseBody>>,
    /// The bodies of HTTP requests that are not sent yet.
    outgoing: RefCell<HashMap<u32, RequestBody>>,
    senders: RefCell<HashMap<u32, Sender>>,
    ends: RefCell<HashMap<u32, Rc<Notify>>>,
}

impl Bodies {
    /// Opens an HTTP exchange (a request and its response) and returns its id.
    pub(super) fn open(&self) -> u32 {
        let id = self.last.get().wrapping_add(1);
        self.last.set(id);
        self.ends.borrow_mut().insert(id, Rc::new(Notify::new()));
        id
    }

    /// Returns a notification that fires when the HTTP exchange is closed.
    pub(super) fn end(&self, id: u32) -> Rc<Notify> {
        self.ends.borrow().get(&id).cloned().unwrap_or_else(|| {
            let over = Notify::new();
            over.notify_one();
            Rc::new(over)
        })
    }

    /// Closes an HTTP exchange in any state.
    pub(super) fn close(&self, id: u32) {
        if let Some(end) = self.ends.borrow_mut().remove(&id) {
            end.notify_one();
        }
        self.incoming.borrow_mut().remove(&id);
        self.outgoing.borrow_mut().remove(&id);
        self.senders.borrow_mut().remove(&id);
    }

    /// Stores the body of a response, unless its exchange was closed in the meantime.
    pub(super) fn keep(&self, id: u32, body: ResponseBody) {
        if self.ends.borrow().contains_key(&id) {
            self.incoming.borrow_mut().insert(id, body);
        }
    }

    /// Removes and returns the body of a response for reading. The reader stores it again with
    /// [`Self::keep`].
    pub(super) fn take(&self, id: u32) -> Option<ResponseBody> {
        self.incoming.borrow_mut().remove(&id)
    }

    /// Creates a request body that is sent in chunks.
    pub(super) fn stream(&self, id: u32) {
        let (sender, body) = http::stream();
        self.senders.borrow_mut().insert(id, sender);
        self.outgoing.borrow_mut().insert(id, body);
    }

    /// Removes and returns the request body that [`Self::stream`] created.
    pub(super) fn take_stream(&self, id: u32) -> Option<RequestBody> {
        self.outgoing.borrow_mut().remove(&id)
    }

    pub(super) fn sender(&self, id: u32) -> Option<Sender> {
        self.senders.borrow().get(&id).cloned()
    }

    /// Ends the streamed request body and returns its sender.
    pub(super) fn finish_stream(&self, id: u32) -> Option<Sender> {
        self.senders.borrow_mut().remove(&id)
    }
}
