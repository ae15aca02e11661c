//! How a request went, for the record and the meter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http::StatusCode;

use crate::broker::Broker;
use crate::meter::{Charge, Charged, Provider, Usage};
use crate::record::{Finished, Recorded, Word};
use crate::scrub::BoxError;

/// Tells the record how a request went, once, whatever becomes of it.
#[derive(Debug)]
pub(super) struct Report {
    broker: Arc<Broker>,
    began: Instant,
    sent: Arc<AtomicU64>,
    charge: Option<Charge>,
    pub(super) stopped: Arc<OnceLock<Stopped>>,
    finished: Option<Finished>,
}

impl Report {
    pub(super) fn new(
        broker: &Arc<Broker>,
        recorded: &Recorded,
        began: Instant,
        charge: Option<Charge>,
    ) -> Self {
        let cause = recorded.index();
        let error = Some("broken off".to_owned());
        let finished = Finished { cause, status: None, sent: 0, received: 0, micros: 0, error };
        let broker = Arc::clone(broker);
        let (sent, stopped) = (Arc::default(), Arc::default());
        Self { broker, began, sent, charge, stopped, finished: Some(finished) }
    }

    pub(super) fn status(&mut self, status: StatusCode) {
        if let Some(finished) = &mut self.finished {
            finished.status = Some(status.as_u16());
        }
    }

    /// Counts the bytes of its bodies against what they are charged to.
    pub(super) fn counter(&self) -> Counter {
        let (broker, sent) = (Arc::clone(&self.broker), Arc::clone(&self.sent));
        Counter { broker, sent, charge: self.charge.clone() }
    }

    /// Charges what a model used.
    pub(super) fn used(&self, provider: Provider, usage: &Usage) {
        let Some(charge) = &self.charge else { return };
        let charged = self.broker.meter().usage(charge, provider, usage);
        let words = charged.into_iter().map(|Charged { owner, unit, amount, total }| Word::Spent {
            budget: owner.to_string(),
            unit: unit.to_owned(),
            amount,
            total,
        });
        self.broker.clerk.tell(words.collect());
    }

    pub(super) fn received(&mut self, bytes: usize) {
        if let Some(finished) = &mut self.finished {
            finished.received += u64::try_from(bytes).unwrap_or(u64::MAX);
        }
    }

    /// It is over, well or with an error.
    pub(super) fn finish(mut self, error: Option<String>) {
        if let Some(finished) = &mut self.finished {
            finished.error = error;
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(mut finished) = self.finished.take() {
            finished.sent = self.sent.load(Ordering::Relaxed);
            finished.micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.broker.clerk.tell(vec![Word::Finished(finished)]);
        }
    }
}

/// Counts bytes as they pass.
#[derive(Debug)]
pub(super) struct Counter {
    broker: Arc<Broker>,
    sent: Arc<AtomicU64>,
    charge: Option<Charge>,
}

impl Counter {
    /// More than is left is an error, and ends the body.
    pub(super) fn sent(&self, bytes: usize) -> Result<(), BoxError> {
        self.sent.fetch_add(u64::try_from(bytes)?, Ordering::Relaxed);
        self.received(bytes)
    }

    pub(super) fn received(&self, bytes: usize) -> Result<(), BoxError> {
        match &self.charge {
            Some(charge) => Ok(self.broker.meter().bytes(charge, u64::try_from(bytes)?)?),
            None => Ok(()),
        }
    }
}

/// Why the body of a request did not go on.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) is_placeholder: bool,
    pub(super) why: String,
}
