//! The encoding of one event as the bytes that are hashed, chained and proved.

use std::fmt;
use std::str::FromStr;

use belljar_model::RunId;

use crate::bytes::{Cursor, put_str8};
use crate::digest::Digest;
use crate::field::{self, FieldError, Fields, Raw};

/// The process or person that recorded an event; always on the host, never inside a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Actor {
    /// A person at the command line, or their script.
    Operator,
    /// The process that supervises a box.
    Supervisor,
    /// The broker, the only network path out of a box.
    Broker,
    /// The engine that runs tasks and plans.
    Engine,
    /// The importer of traces from other systems.
    Importer,
    /// The driver, which carries out plans.
    Driver,
}

/// The time of an event, for people only: the order of events is their index, not their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since 1970 by the host's clock.
    pub time: u64,
    /// Nanoseconds since the host booted.
    pub uptime: u64,
    pub boot: [u8; 16],
}

/// One decoded event with its place in its run's chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: String,
    /// The run of the event; `None` for an event of the ledger itself.
    pub run: Option<RunId>,
    pub sequence: u64,
    /// The hash of the previous event of the same run.
    pub previous: Option<Digest>,
    pub actor: Actor,
    /// The index of the event that caused this event.
    pub cause: Option<u64>,
    pub moment: Moment,
    pub fields: Fields,
}

/// An event borrowed from its bytes, checked to be in canonical encoding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryView<'a> {
    pub(crate) kind: &'a str,
    /// The run id of 16 characters, or an empty text for the ledger itself.
    pub(crate) run: &'a str,
    pub(crate) sequence: u64,
    pub(crate) previous: Digest,
    pub(crate) actor: Actor,
    pub(crate) cause: Option<u64>,
    pub(crate) moment: Moment,
    fields: Cursor<'a>,
}

/// Why bytes are not an event of this version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("the version of the event is {0}, but this version of Belljar reads only version 1")]
    Version(u8),
    #[error("the event is truncated")]
    Short,
    #[error("the event is longer than 65,535 bytes")]
    Long,
    #[error("the kind of the event has characters other than a-z, 0-9, `.` and `_`")]
    Kind,
    #[error("the run of the event is not a valid run id")]
    Run,
    #[error("the first event of a run has a previous hash, or a later event has none")]
    Previous,
    #[error("the actor of the event is unknown")]
    Actor,
    #[error("the byte before the cause of the event is neither 0 nor 1")]
    Cause,
    #[error(transparent)]
    Fields(#[from] FieldError),
    #[error("there are extra bytes after the last field of the event")]
    LeftOver,
}

/// The maximum length of an event in bytes, which is that of an entry in a C2SP tile bundle.
pub const MAX_ENTRY: usize = u16::MAX as usize;

const VERSION: u8 = 1;
const NONE: [u8; Digest::LENGTH] = [0; Digest::LENGTH];

impl Entry {
    pub fn encode(&self) -> Result<Vec<u8>, EntryError> {
        let mut out = Vec::with_capacity(256);
        self.put(&mut out).ok_or(EntryError::Long)?;
        if out.len() > MAX_ENTRY {
            return Err(EntryError::Long);
        }
        Ok(out)
    }

    /// Appends the encoded event; `None` if a part exceeds the limits of the format.
    fn put(&self, out: &mut Vec<u8>) -> Option<()> {
        out.push(VERSION);
        put_str8(out, &self.kind)?;
        put_str8(out, &self.run.map(|run| run.to_string()).unwrap_or_default())?;
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(self.previous.map_or(NONE, |hash| *hash.as_bytes()).as_slice());
        put_str8(out, self.actor.name())?;
        match self.cause {
            Some(index) => {
                out.push(1);
                out.extend_from_slice(&index.to_be_bytes());
            }
            None => out.push(0),
        }
        out.extend_from_slice(&self.moment.time.to_be_bytes());
        out.extend_from_slice(&self.moment.uptime.to_be_bytes());
        out.extend_from_slice(&self.moment.boot);
        self.fields.encode(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, EntryError> {
        let view = EntryView::parse(bytes)?;
        let run = (!view.run.is_empty()).then(|| view.run.parse()).transpose();
        Ok(Self {
            kind: view.kind.to_owned(),
            run: run.map_err(|_| EntryError::Run)?,
            sequence: view.sequence,
            previous: (view.sequence > 0).then_some(view.previous),
            actor: view.actor,
            cause: view.cause,
            moment: view.moment,
            fields: Fields::decode(&mut { view.fields })?,
        })
    }
}

impl<'a> EntryView<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, EntryError> {
        if bytes.len() > MAX_ENTRY {
            return Err(EntryError::Long);
        }
        let mut cursor = Cursor::new(bytes);
        match cursor.u8().ok_or(EntryError::Short)? {
            VERSION => {}
            other => return Err(EntryError::Version(other)),
        }
        let kind = cursor.str8().ok_or(EntryError::Short)?;
        let run = cursor.str8().ok_or(EntryError::Short)?;
        let sequence = cursor.u64().ok_or(EntryError::Short)?;
        let previous = cursor.array().ok_or(EntryError::Short)?;
        let actor = cursor.str8().ok_or(EntryError::Short)?;
        let cause = match cursor.u8().ok_or(EntryError::Short)? {
            0 => None,
            1 => Some(cursor.u64().ok_or(EntryError::Short)?),
            _ => return Err(EntryError::Cause),
        };
        let time = cursor.u64().ok_or(EntryError::Short)?;
        let uptime = cursor.u64().ok_or(EntryError::Short)?;
        let boot = cursor.array().ok_or(EntryError::Short)?;
        let fields = cursor;
        field::walk(&mut cursor, |_, _| {})?;
        if !cursor.is_empty() {
            return Err(EntryError::LeftOver);
        }
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.');
        if kind.is_empty() || !kind.bytes().all(plain) {
            return Err(EntryError::Kind);
        }
        if !run.is_empty() && RunId::from_str(run).is_err() {
            return Err(EntryError::Run);
        }
        if (sequence == 0) != (previous == NONE) {
            return Err(EntryError::Previous);
        }
        Ok(Self {
            kind,
            run,
            sequence,
            previous: Digest::new(previous),
            actor: actor.parse()?,
            cause,
            moment: Moment { time, uptime, boot },
            fields,
        })
    }

    /// Passes each field to `show`; the fields were checked when the event was parsed.
    pub(crate) fn walk(&self, show: impl FnMut(&'a str, Raw<'a>)) {
        let checked = field::walk(&mut { self.fields }, show);
        debug_assert!(checked.is_ok(), "fields are checked by `parse`");
    }
}

impl Actor {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Supervisor => "supervisor",
            Self::Broker => "broker",
            Self::Engine => "engine",
            Self::Importer => "importer",
            Self::Driver => "driver",
        }
    }
}

impl FromStr for Actor {
    type Err = EntryError;

    fn from_str(text: &str) -> Result<Self, EntryError> {
        let all = [
            Self::Operator,
            Self::Supervisor,
            Self::Broker,
            Self::Engine,
            Self::Importer,
            Self::Driver,
        ];
        all.into_iter().find(|actor| actor.name() == text).ok_or(EntryError::Actor)
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
