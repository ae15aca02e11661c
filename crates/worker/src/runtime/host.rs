//! What the functions of the engine share: the way out, and what is known of the program.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;

use rquickjs::{Object, Persistent, Value};

use belljar_wire::{self as wire, FromWorker, Stream};

use super::alive::Alive;
use super::modules::Sources;
use super::strip::Places;
use super::timers::Timers;

#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) alive: Alive,
    pub(super) timers: RefCell<Timers>,
    pub(super) sources: RefCell<Sources>,
    /// Of every text of the program and of what it imports: the way back to its lines.
    pub(super) places: RefCell<HashMap<String, Places>>,
    /// Promises that failed and that nobody has asked yet, and why.
    pub(super) rejected: RefCell<Vec<(Kept, Kept)>>,
    /// What the prelude gives.
    pub(super) prelude: RefCell<Option<Persistent<Object<'static>>>>,
    /// Of the process, for `process.env`.
    pub(super) env: Vec<(String, String)>,
}

pub(super) type Kept = Persistent<Value<'static>>;

impl Host {
    pub(super) fn new(env: Vec<(String, String)>) -> Self {
        Self { env, ..Self::default() }
    }

    pub(super) fn say(&self, said: &FromWorker) -> io::Result<()> {
        wire::write(&mut io::stdout().lock(), said)
    }

    /// Text of the program. Too much for one frame goes into several.
    pub(super) fn output(&self, stream: Stream, text: &str) -> io::Result<()> {
        const PART: usize = 1 << 20;
        let mut rest = text;
        while !rest.is_empty() {
            let (part, more) = rest.split_at(rest.floor_char_boundary(PART));
            self.say(&FromWorker::Output { stream, text: part.to_owned() })?;
            rest = more;
        }
        Ok(())
    }
}
