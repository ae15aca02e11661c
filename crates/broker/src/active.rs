//! Tracks active requests and connections, so that a change of the rules can cut off those that are
//! no longer allowed.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use belljar_model::net::{Hostname, Target};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::oneshot;

use crate::rules::{Handling, OutboundRequest, Rules};
use crate::scrub::BoxError;
use crate::upstream::Body;

/// The error text that a client gets when changed rules abort its request.
pub(crate) const CUT_MESSAGE: &str =
    "the rules of the box changed and no longer allow this traffic";

/// A request or connection in progress, in the form that the rules check.
#[derive(Debug)]
pub(crate) enum Traffic {
    Request(Arc<OutboundRequest>),
    Tcp(Target, u16),
    Tls(Hostname, u16),
}

impl Traffic {
    fn is_allowed(&self, rules: &Rules) -> bool {
        match self {
            Self::Request(request) => rules.check(request).is_ok(),
            Self::Tcp(target, port) => rules.tcp(target, *port).is_ok(),
            Self::Tls(name, port) => {
                matches!(rules.tls(name, *port), Handling::Passthrough(_))
            }
        }
    }
}

/// All requests and connections of a box that are in progress.
#[derive(Debug, Default)]
pub(crate) struct ActiveTraffic {
    all: Mutex<HashMap<u64, Entry>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    traffic: Traffic,
    is_cut: Arc<AtomicBool>,
    _cut: oneshot::Sender<()>,
}

impl ActiveTraffic {
    /// Registers a request or connection as active until the ticket is dropped.
    pub(crate) fn begin(self: &Arc<Self>, traffic: Traffic) -> Ticket {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, cut) = oneshot::channel();
        let is_cut = Arc::new(AtomicBool::new(false));
        let entry = Entry { traffic, is_cut: Arc::clone(&is_cut), _cut: sender };
        self.all.lock().unwrap_or_else(PoisonError::into_inner).insert(number, entry);
        Ticket { active: Arc::clone(self), number, is_cut, cut }
    }

    /// Registers a request or connection that was allowed earlier, or returns `None` if these rules
    /// do not allow it.
    pub(crate) fn begin_if_allowed(
        self: &Arc<Self>,
        traffic: Traffic,
        rules: &Rules,
    ) -> Option<Ticket> {
        traffic.is_allowed(rules).then(|| self.begin(traffic))
    }

    /// Aborts all requests and connections that these rules do not allow.
    pub(crate) fn cut(&self, rules: &Rules) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, entry| {
            let stays = entry.traffic.is_allowed(rules);
            entry.is_cut.store(!stays, Ordering::Release);
            stays
        });
    }
}

/// The registration of one active request or connection; dropping it ends the registration.
/// Completes as a future when the traffic is cut off.
#[derive(Debug)]
pub(crate) struct Ticket {
    active: Arc<ActiveTraffic>,
    number: u64,
    is_cut: Arc<AtomicBool>,
    cut: oneshot::Receiver<()>,
}

impl Ticket {
    /// Returns a flag that is set when changed rules abort the request or connection.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_cut)
    }
}

/// Completes when changed rules no longer allow the request or connection.
impl Future for Ticket {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_cut.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        // No value is ever sent: a cut drops the sender.
        Pin::new(&mut self.cut).poll(context).map(|_| ())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.active.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// A response body that fails when changed rules abort its request.
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
            return Poll::Ready(Some(Err(CUT_MESSAGE.into())));
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
