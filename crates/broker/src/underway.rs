//! What is under way, so that it can be cut off when other rules do not allow it any more.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use belljar_model::net::{Hostname, Target};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::oneshot;

use crate::rules::{Ask, Handling, Rules};
use crate::scrub::BoxError;
use crate::upstream::Body;

/// What a program is told.
pub(crate) const CUT: &str = "the rules of the box changed, and do not allow it any more";

/// Something that was let out, as the rules are asked about it.
#[derive(Debug)]
pub(crate) enum Carried {
    Request(Arc<Ask>),
    Tcp(Target, u16),
    Tls(Hostname, u16),
}

impl Carried {
    fn is_allowed(&self, rules: &Rules) -> bool {
        match self {
            Self::Request(ask) => rules.check(ask).is_ok(),
            Self::Tcp(target, port) => rules.tcp(target, *port).is_ok(),
            Self::Tls(name, port) => {
                matches!(rules.tls(name, *port), Handling::Passthrough(_))
            }
        }
    }
}

/// Everything that is under way.
#[derive(Debug, Default)]
pub(crate) struct Underway {
    all: Mutex<HashMap<u64, Entry>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    carried: Carried,
    is_cut: Arc<AtomicBool>,
    _cut: oneshot::Sender<()>,
}

impl Underway {
    /// Something goes out now, until the ticket is dropped.
    pub(crate) fn begin(self: &Arc<Self>, carried: Carried) -> Ticket {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, cut) = oneshot::channel();
        let is_cut = Arc::new(AtomicBool::new(false));
        let entry = Entry { carried, is_cut: Arc::clone(&is_cut), _cut: sender };
        self.all.lock().unwrap_or_else(PoisonError::into_inner).insert(number, entry);
        Ticket { underway: Arc::clone(self), number, is_cut, cut }
    }

    /// The same for what was decided a while ago: none if these rules do not allow it.
    pub(crate) fn still(self: &Arc<Self>, carried: Carried, rules: &Rules) -> Option<Ticket> {
        carried.is_allowed(rules).then(|| self.begin(carried))
    }

    /// Cuts what these rules do not allow.
    pub(crate) fn cut(&self, rules: &Rules) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, entry| {
            let stays = entry.carried.is_allowed(rules);
            entry.is_cut.store(!stays, Ordering::Release);
            stays
        });
    }
}

/// One thing that is under way.
#[derive(Debug)]
pub(crate) struct Ticket {
    underway: Arc<Underway>,
    number: u64,
    is_cut: Arc<AtomicBool>,
    cut: oneshot::Receiver<()>,
}

impl Ticket {
    /// Whether it is cut off, for whoever looks only now and then.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_cut)
    }
}

/// Waits until the rules do not allow it any more.
impl Future for Ticket {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_cut.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        // Nothing is ever sent: the other end is dropped.
        Pin::new(&mut self.cut).poll(context).map(|_| ())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.underway.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// The body of an answer, which ends with an error when it is cut off.
pub(crate) struct Cuttable {
    body: Body,
    ticket: Ticket,
}

impl Cuttable {
    pub(crate) const fn new(body: Body, ticket: Ticket) -> Self {
        Self { body, ticket }
    }
}

impl HttpBody for Cuttable {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if Pin::new(&mut self.ticket).poll(context).is_ready() {
            return Poll::Ready(Some(Err(CUT.into())));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
