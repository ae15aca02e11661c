//! Adds the newer events of the log to the index.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, Statement, Transaction, TransactionBehavior};

use super::query::{number, ordered, position, sum};
use super::reached::Reached;
use super::sql::{BLOCK, family};
use super::{IndexError, Progress};
use crate::digest::Digest;
use crate::entry::EntryView;
use crate::event;
use crate::field::Raw;
use crate::frame::HEADER;
use crate::log::{Batch, Located, Log, LogError, Scan};

/// Events per transaction: large enough for speed, small enough to let other processes in between.
const CHUNK: u64 = 10_000;

/// Why an update of the index ended early.
#[derive(Debug)]
pub(super) enum Stop {
    Sqlite(rusqlite::Error),
    Index(IndexError),
}

/// The state of a run during one transaction.
#[derive(Debug, Clone, Copy)]
struct Run {
    id: i64,
    first: u64,
    last: u64,
    sequence: u64,
    hash: Digest,
}

/// One transaction that adds events.
struct Filling<'t> {
    transaction: &'t Transaction<'t>,
    event: Statement<'t>,
    body: Statement<'t>,
    open: Statement<'t>,
    opened: Statement<'t>,
    close: Statement<'t>,
    span: Statement<'t>,
    names: HashMap<String, i64>,
    runs: HashMap<String, Run>,
    next_run: i64,
    /// The numbers of rows that the transaction adds to `run` and `open_intent`.
    new_runs: u64,
    opened_intents: u64,
    /// The number of rows that the transaction removes from `open_intent`.
    closed_intents: u64,
    /// The block that is being filled, with its earliest and latest time.
    block: Option<(u64, u64, u64)>,
    tail: Option<(u64, usize, Digest)>,
}

/// Adds the events that the log has at the start of the call.
///
/// Events appended during the call are left for the next one; otherwise a fast writer would keep
/// the call busy forever and block other callers.
pub(super) fn catch_up(
    connection: &mut Connection,
    log: &Log,
    progress: Progress<'_>,
) -> Result<(), Stop> {
    let reached = Reached::read(connection).map_err(Stop::Sqlite)?;
    let until = log.length().map_err(|error| stop(reached.next, error))?;
    catch_up_to(connection, log, until, progress)
}

/// Adds the events up to an offset of the log.
pub(super) fn catch_up_to(
    connection: &mut Connection,
    log: &Log,
    until: u64,
    progress: Progress<'_>,
) -> Result<(), Stop> {
    let reached = Reached::read(connection).map_err(Stop::Sqlite)?;
    if fits(&reached, log)? && until == reached.offset {
        return Ok(());
    }
    let mut scan: Option<Scan<'_>> = None;
    loop {
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(Stop::Sqlite)?;
        let mut reached = Reached::read(&transaction).map_err(Stop::Sqlite)?;
        if !fits(&reached, log)? {
            // The log was restored from a copy, or lost its end in a power failure.
            reached = clear(&transaction).map_err(Stop::Sqlite)?;
        }
        // Another process can have added events meanwhile.
        let mut from = match scan.take().filter(|scan| scan.offset() == reached.offset) {
            Some(scan) => scan,
            None => log.scan(reached.offset, reached.next),
        };
        let end = fill(&transaction, log, &mut from, (&mut reached, until));
        if let Err(Stop::Sqlite(error)) = end {
            return Err(Stop::Sqlite(error));
        }
        reached.write(&transaction).map_err(Stop::Sqlite)?;
        transaction.commit().map_err(Stop::Sqlite)?;
        progress(reached.offset, until);
        match end? {
            true => return Ok(()),
            false => scan = Some(from),
        }
    }
}

/// Adds up to [`CHUNK`] events and returns whether none are left before `until`.
fn fill<'l>(
    transaction: &Transaction<'_>,
    log: &'l Log,
    scan: &mut Scan<'l>,
    (reached, until): (&mut Reached, u64),
) -> Result<bool, Stop> {
    let mut filling = Filling::new(transaction).map_err(Stop::Sqlite)?;
    let goal = reached.next + CHUNK;
    let end = loop {
        if reached.offset >= until {
            break Ok(true);
        }
        if reached.next >= goal {
            break Ok(false);
        }
        match scan.next() {
            Ok(Some(batch)) => {
                if let Err(stop) = filling.add_all(batch) {
                    break Err(stop);
                }
                reached.next = batch.end();
                reached.offset = scan.offset();
            }
            Ok(None) => break Ok(true),
            Err(error) => match is_damage(log, reached, &error) {
                Ok(None) => break Ok(true),
                Ok(Some(fresh)) => *scan = fresh,
                Err(()) => break Err(stop(reached.next, error)),
            },
        }
    };
    if let Err(Stop::Sqlite(error)) = end {
        return Err(Stop::Sqlite(error));
    }
    reached.runs += filling.new_runs;
    reached.intents =
        (reached.intents + filling.opened_intents).saturating_sub(filling.closed_intents);
    reached.tail = filling.finish().map_err(Stop::Sqlite)?.or(reached.tail);
    end
}

/// Returns an error for a damaged log, `None` for a torn append, or a scan to retry with.
fn is_damage<'l>(
    log: &'l Log,
    reached: &Reached,
    error: &LogError,
) -> Result<Option<Scan<'l>>, ()> {
    let LogError::Batch { offset, .. } = error else { return Err(()) };
    if !log.has_batch_behind(*offset).map_err(|_| ())? {
        return Ok(None);
    }
    // The batch can have been read while it was being written; by now the next one can be complete.
    let is_whole = matches!(log.scan(reached.offset, reached.next).next(), Ok(Some(_)));
    match is_whole {
        true => Ok(Some(log.scan(reached.offset, reached.next))),
        false => Err(()),
    }
}

pub(super) fn fits(reached: &Reached, log: &Log) -> Result<bool, Stop> {
    reached.fits(log).map_err(|error| stop(reached.next, error))
}

fn stop(next: u64, source: LogError) -> Stop {
    Stop::Index(IndexError::Log { next, source })
}

/// Deletes all rows that were derived from the log.
fn clear(transaction: &Transaction<'_>) -> rusqlite::Result<Reached> {
    transaction.execute_batch(
        "DELETE FROM event; DELETE FROM name; DELETE FROM run; DELETE FROM span; DELETE FROM body;
         DELETE FROM open_intent;",
    )?;
    let reached =
        Reached { next: 0, offset: HEADER as u64, tail: None, runs: 0, intents: 0, is_sound: true };
    reached.write(transaction)?;
    Ok(reached)
}

impl<'t> Filling<'t> {
    fn new(transaction: &'t Transaction<'t>) -> rusqlite::Result<Self> {
        let mut names = HashMap::new();
        let mut known = transaction.prepare("SELECT text, id FROM name")?;
        let mut rows = known.query([])?;
        while let Some(row) = rows.next()? {
            names.insert(row.get(0)?, row.get(1)?);
        }
        let prepare = |sql| transaction.prepare(sql);
        Ok(Self {
            transaction,
            event: prepare("INSERT INTO event VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)")?,
            // An event can reference a body twice; the body counts as stored if either reference
            // says so.
            body: prepare(
                "INSERT INTO body VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (hash, idx) DO UPDATE SET kept = max(kept, excluded.kept)",
            )?,
            open: prepare("INSERT INTO open_intent VALUES (?1, ?2, ?3)")?,
            opened: prepare("SELECT kind FROM open_intent WHERE idx = ?1")?,
            close: prepare("DELETE FROM open_intent WHERE idx = ?1")?,
            span: prepare(
                "INSERT INTO span VALUES (?1, ?2, ?3) ON CONFLICT (block) DO UPDATE
                 SET earliest = min(earliest, excluded.earliest), latest = max(latest, excluded.latest)",
            )?,
            next_run: transaction
                .query_row("SELECT coalesce(max(id), 0) + 1 FROM run", [], |row| row.get(0))?,
            names,
            new_runs: 0,
            opened_intents: 0,
            closed_intents: 0,
            runs: HashMap::new(),
            block: None,
            tail: None,
        })
    }

    fn add_all(&mut self, batch: Batch<'_>) -> Result<(), Stop> {
        // A batch is added completely or not at all, so the indexed part ends at the end of a
        // batch.
        let parse = |event: Located<'_>| {
            EntryView::parse(event.bytes)
                .map(|_| ())
                .map_err(|source| IndexError::Event { index: event.index, source })
        };
        batch.events().try_for_each(parse).map_err(Stop::Index)?;
        for event in batch.events() {
            if let Ok(view) = EntryView::parse(event.bytes) {
                self.add(&event, &view).map_err(Stop::Sqlite)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, event: &Located<'_>, view: &EntryView<'_>) -> rusqlite::Result<()> {
        let run = self.run(event, view)?;
        let (family, kind) = (self.name(family(view.kind))?, self.name(view.kind)?);
        let actor = self.name(view.actor.name())?;
        let index = number(event.index);
        let numbers = [
            index,
            number(event.offset),
            number(event.bytes.len() as u64),
            run,
            view.sequence.cast_signed(),
            family,
            kind,
            actor,
            ordered(view.moment.time),
        ];
        let cause = view.cause.map(u64::cast_signed);
        let sum = sum(numbers, cause, &event.leaf);
        let [index, offset, length, run, sequence, family, kind, actor, time] = numbers;
        self.event.execute((
            index,
            offset,
            length,
            event.leaf.as_bytes(),
            run,
            sequence,
            family,
            kind,
            actor,
            cause,
            time,
            sum,
        ))?;
        let mut verdict = None;
        let mut bodies = Vec::new();
        view.walk(|name, value| match value {
            Raw::Text(text) if name == "verdict" => verdict = Some(text),
            Raw::Body(body) => bodies.push(body),
            Raw::Text(_)
            | Raw::Bytes(_)
            | Raw::Number(_)
            | Raw::Truth(_)
            | Raw::List(_)
            | Raw::Hash(_) => {}
        });
        for body in bodies {
            let size = body.size().cast_signed();
            self.body.execute((body.hash().as_bytes(), index, size, body.is_kept()))?;
        }
        if let Some(cause) = cause {
            let intent: Option<String> =
                self.opened.query_row([cause], |row| row.get(0)).optional()?;
            if intent.is_some_and(|intent| event::closes(view.kind, &intent)) {
                self.closed_intents += self.close.execute([cause])? as u64;
            }
        }
        if event::opens(view.kind, verdict) {
            self.opened_intents += self.open.execute((index, run, view.kind))? as u64;
        }
        self.tail = Some((event.offset, event.bytes.len(), event.leaf));
        self.see(event.index / BLOCK, view.moment.time)
    }

    fn name(&mut self, text: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.names.get(text) {
            return Ok(*id);
        }
        self.transaction.execute("INSERT INTO name (text) VALUES (?1)", [text])?;
        let id = self.transaction.last_insert_rowid();
        self.names.insert(text.to_owned(), id);
        Ok(id)
    }

    /// Updates the newest event of the run and returns the number of the run.
    fn run(&mut self, event: &Located<'_>, view: &EntryView<'_>) -> rusqlite::Result<i64> {
        let newest =
            |run: Run| Run { last: event.index, sequence: view.sequence, hash: event.leaf, ..run };
        if let Some(run) = self.runs.get_mut(view.run) {
            *run = newest(*run);
            return Ok(run.id);
        }
        let known = self
            .transaction
            .query_row("SELECT id, first FROM run WHERE run = ?1", [view.run], |row| {
                Ok((row.get(0)?, position(row, 1)?))
            })
            .optional()?;
        self.new_runs += u64::from(known.is_none());
        let (id, first) = known.unwrap_or((self.next_run, event.index));
        self.next_run = self.next_run.max(id + 1);
        let run = Run { id, first, last: 0, sequence: 0, hash: event.leaf };
        self.runs.insert(view.run.to_owned(), newest(run));
        Ok(id)
    }

    fn see(&mut self, block: u64, time: u64) -> rusqlite::Result<()> {
        match &mut self.block {
            Some((current, earliest, latest)) if *current == block => {
                (*earliest, *latest) = (time.min(*earliest), time.max(*latest));
                Ok(())
            }
            Some(_) | None => {
                self.end_block()?;
                self.block = Some((block, time, time));
                Ok(())
            }
        }
    }

    fn end_block(&mut self) -> rusqlite::Result<()> {
        if let Some((block, earliest, latest)) = self.block.take() {
            self.span.execute((number(block), ordered(earliest), ordered(latest)))?;
        }
        Ok(())
    }

    /// Writes the collected data and returns the last added event.
    fn finish(mut self) -> rusqlite::Result<Option<(u64, usize, Digest)>> {
        self.end_block()?;
        let mut write = self.transaction.prepare(
            "INSERT INTO run VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (id) DO UPDATE SET
             last = excluded.last, last_sequence = excluded.last_sequence,
             last_hash = excluded.last_hash",
        )?;
        for (name, run) in &self.runs {
            write.execute((
                run.id,
                name,
                number(run.first),
                number(run.last),
                run.sequence.cast_signed(),
                run.hash.as_bytes(),
            ))?;
        }
        Ok(self.tail)
    }
}
