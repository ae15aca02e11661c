//! Reports the result of a request to the ledger and the meter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http::StatusCode;

use crate::broker::Broker;
use crate::meter::{Charge, Charged, ModelApi, Outcome, Usage};
use crate::record::{BrokerEvent, Finished, ModelCalled, Recorded};
use crate::scrub::BoxError;

/// Records the result of a request once, at the latest when this value is dropped.
#[derive(Debug)]
pub(super) struct Report {
    broker: Arc<Broker>,
    began: Instant,
    sent: Arc<AtomicU64>,
    charge: Option<Charge>,
    /// What the request used, if nothing else is known at its end.
    at_end: AtEnd,
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
        let error = Some("aborted".to_owned());
        let finished = Finished { cause, status: None, sent: 0, received: 0, micros: 0, error };
        let broker = Arc::clone(broker);
        let (sent, stopped) = (Arc::default(), Arc::default());
        let at_end = AtEnd::Unsent;
        Self { broker, began, sent, charge, at_end, stopped, finished: Some(finished) }
    }

    /// Notes that the request is being sent. From now on, it costs its whole reservation unless a
    /// response says otherwise.
    pub(super) fn sending(&mut self) {
        self.at_end = AtEnd::Unknown;
    }

    /// Notes that the request did not reach the upstream.
    pub(super) fn unsent(&mut self) {
        self.at_end = AtEnd::Unsent;
    }

    pub(super) fn status(&mut self, status: StatusCode) {
        if let Some(finished) = &mut self.finished {
            finished.status = Some(status.as_u16());
        }
    }

    /// Returns a counter that charges the bytes of the request's bodies.
    pub(super) fn counter(&self) -> Counter {
        let (broker, sent) = (Arc::clone(&self.broker), Arc::clone(&self.sent));
        Counter { broker, sent, charge: self.charge.clone() }
    }

    /// Charges what the request used to its budgets, once.
    pub(super) fn settle(&mut self, outcome: Outcome<'_>) {
        let Some(charge) = &self.charge else { return };
        if std::mem::replace(&mut self.at_end, AtEnd::Settled) == AtEnd::Settled {
            return;
        }
        let charged = self.broker.meter().settle(charge, outcome);
        if charged.is_empty() {
            return;
        }
        let events = charged.into_iter().map(|Charged { owner, unit, amount, total }| {
            BrokerEvent::Spent { budget: owner.to_string(), unit: unit.to_owned(), amount, total }
        });
        self.broker.recorder.send(events.collect());
    }

    /// Records what a model answered and used, as its response says.
    pub(super) fn called(&self, api: ModelApi, usage: &Usage, is_complete: bool) {
        let Some(Finished { cause, .. }) = self.finished else { return };
        let microusd = self.broker.meter().cost(api, usage).0;
        let Usage { model, input, cache_read, cache_write, output } = usage.clone();
        self.broker.recorder.send(vec![BrokerEvent::ModelCalled(ModelCalled {
            cause,
            provider: api.provider.name().to_owned(),
            model,
            input,
            cache_read,
            cache_write,
            output,
            microusd,
            is_complete,
        })]);
    }

    pub(super) fn received(&mut self, bytes: usize) {
        if let Some(finished) = &mut self.finished {
            finished.received += u64::try_from(bytes).unwrap_or(u64::MAX);
        }
    }

    /// Records the end of the request, with an error if the request failed.
    pub(super) fn finish(mut self, error: Option<String>) {
        if let Some(finished) = &mut self.finished {
            finished.error = error;
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        match self.at_end {
            AtEnd::Unsent => self.settle(Outcome::Unsent),
            AtEnd::Unknown => self.settle(Outcome::Unknown),
            AtEnd::Settled => {}
        }
        if let Some(mut finished) = self.finished.take() {
            finished.sent = self.sent.load(Ordering::Relaxed);
            finished.micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.broker.recorder.send(vec![BrokerEvent::Finished(finished)]);
        }
    }
}

/// What a request used, as far as its end shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtEnd {
    Unsent,
    Unknown,
    Settled,
}

/// A charge of a request that has no report yet. Dropping it releases its reservation.
#[derive(Debug)]
pub(super) struct Pending {
    broker: Arc<Broker>,
    charge: Option<Charge>,
}

impl Pending {
    pub(super) fn new(broker: &Arc<Broker>, charge: Charge) -> Self {
        Self { broker: Arc::clone(broker), charge: Some(charge) }
    }

    pub(super) fn take(mut self) -> Option<Charge> {
        self.charge.take()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(charge) = self.charge.take() {
            self.broker.meter().settle(&charge, Outcome::Unsent);
        }
    }
}

/// Counts the bytes of a body and charges them to the limits of the request.
#[derive(Debug)]
pub(super) struct Counter {
    broker: Arc<Broker>,
    sent: Arc<AtomicU64>,
    charge: Option<Charge>,
}

impl Counter {
    /// Counts sent bytes; returns an error if a limit is exceeded, which aborts the body.
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

/// The reason why the broker stopped the body of a request.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) is_placeholder: bool,
    pub(super) why: String,
}
