//! Calls of MCP tools, which the host forwards to their servers.
//!
//! Results arrive on standard input. The first call starts a thread that reads them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use belljar_wire::{self as wire, FromWorker, ToWorker};

use super::host::Host;

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Result<Box<RawValue>, String>>>>>;

/// The pending tool calls of a program.
#[derive(Debug)]
pub(super) struct Calls {
    host: Rc<Host>,
    last: Cell<u64>,
    waiting: RefCell<Option<Waiting>>,
}

impl Calls {
    pub(super) fn new(host: Rc<Host>) -> Self {
        Self { host, last: Cell::new(0), waiting: RefCell::new(None) }
    }

    /// Calls an MCP tool through the host and returns its result as JSON text.
    pub(super) fn call(
        &self,
        server: String,
        tool: String,
        input: String,
    ) -> impl Future<Output = Result<String, String>> + use<> {
        let started = self.start(server, tool, input);
        let held = self.host.alive.hold();
        async move {
            let closed = || "the connection to the host is closed".to_owned();
            let answer = started?.await.map_err(|_| closed())?;
            drop(held);
            answer.map(|json| json.get().to_owned())
        }
    }

    fn start(
        &self,
        server: String,
        tool: String,
        input: String,
    ) -> Result<oneshot::Receiver<Result<Box<RawValue>, String>>, String> {
        let input = RawValue::from_string(input).map_err(|error| error.to_string())?;
        let waiting = self.waiting.borrow_mut().get_or_insert_with(start_reader).clone();
        let id = self.last.get() + 1;
        self.last.set(id);
        let (answer, answered) = oneshot::channel();
        waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, answer);
        let sent = self.host.send(&FromWorker::Call { id, server, tool, input });
        sent.map_err(|error| error.to_string())?;
        Ok(answered)
    }
}

fn start_reader() -> Waiting {
    let waiting = Waiting::default();
    let calls = Arc::clone(&waiting);
    let reader = std::thread::Builder::new().spawn(move || {
        while let Ok(Some(ToWorker::Answer { id, value })) = wire::read(&mut io::stdin().lock()) {
            let call = calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Some(call) = call {
                // The program may have dropped the call.
                drop(call.send(value));
            }
        }
        // No more results arrive: dropping the senders fails all pending calls.
        calls.lock().unwrap_or_else(PoisonError::into_inner).clear();
    });
    drop(reader);
    waiting
}
