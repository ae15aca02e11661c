//! Calls to functions of other servers, which the host passes on.
//!
//! Answers come on the standard input, which blocks: a thread waits there, from the first call on.

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

    /// What the function gives, as JSON.
    pub(super) fn call(
        &self,
        server: String,
        tool: String,
        input: String,
    ) -> impl Future<Output = Result<String, String>> + use<> {
        let begun = self.begin(server, tool, input);
        let held = self.host.alive.hold();
        async move {
            let gone = || "the other side is gone".to_owned();
            let answer = begun?.await.map_err(|_| gone())?;
            drop(held);
            answer.map(|json| json.get().to_owned())
        }
    }

    fn begin(
        &self,
        server: String,
        tool: String,
        input: String,
    ) -> Result<oneshot::Receiver<Result<Box<RawValue>, String>>, String> {
        let input = RawValue::from_string(input).map_err(|error| error.to_string())?;
        let waiting = self.waiting.borrow_mut().get_or_insert_with(listen).clone();
        let id = self.last.get() + 1;
        self.last.set(id);
        let (answer, answered) = oneshot::channel();
        waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, answer);
        let said = self.host.say(&FromWorker::Call { id, server, tool, input });
        said.map_err(|error| error.to_string())?;
        Ok(answered)
    }
}

fn listen() -> Waiting {
    let waiting = Waiting::default();
    let known = Arc::clone(&waiting);
    let listening = std::thread::Builder::new().spawn(move || {
        while let Ok(Some(ToWorker::Answer { id, value })) = wire::read(&mut io::stdin().lock()) {
            let asked = known.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Some(asked) = asked {
                // Who asked may be gone.
                drop(asked.send(value));
            }
        }
        // Whoever still waits, waits in vain.
        known.lock().unwrap_or_else(PoisonError::into_inner).clear();
    });
    drop(listening);
    waiting
}
