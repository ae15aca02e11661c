//! Decides which connections a server keeps when it has as many as it allows.
//!
//! A connection that has not sent a valid token is closed first, and among those the oldest one of the
//! address with the most of them. Then idle connections are closed, those of the token with the most
//! connections first. So neither silent connections nor one token can keep other clients out.
//!
//! A token can have at most as many running requests as there are connections without a running
//! request. So there is room for other tokens, however many requests one token sends.
//!
//! [`ConnectionTable`] is pure and decides. [`Connections`] waits for a free place in the table and closes
//! connections.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The number of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ConnectionId(u64);

/// What the server knows about the client of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The client has not sent a valid token.
    Unauthenticated,
    /// The client has sent this token before. No request runs.
    Idle { token: usize },
    /// A request with this token runs.
    Busy { token: usize },
}

/// The row of an open connection in the table.
#[derive(Debug)]
struct Entry<H> {
    peer: IpAddr,
    state: State,
    /// The position in the order of the last changes of all connections.
    changed: u64,
    /// The handle that closes the connection.
    handle: H,
}

/// All open connections of a server.
#[derive(Debug)]
struct ConnectionTable<H> {
    max: usize,
    entries: BTreeMap<ConnectionId, Entry<H>>,
    /// The number of the next connection or change.
    next: u64,
}

/// A new connection, and the handle of the connection that must be closed for it.
#[derive(Debug, PartialEq, Eq)]
struct Opened<H> {
    id: ConnectionId,
    evicted: Option<H>,
}

impl<H> ConnectionTable<H> {
    fn new(max: usize) -> Self {
        Self { max, entries: BTreeMap::new(), next: 0 }
    }

    fn count(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Adds a connection and evicts another one if there are too many. Returns the handle of the new
    /// connection if a request runs on every other one.
    fn open(&mut self, peer: IpAddr, handle: H) -> Result<Opened<H>, H> {
        let evicted = if self.entries.len() < self.max {
            None
        } else {
            let evictable = self.unauthenticated().or_else(|| self.idle());
            let Some(entry) = evictable.and_then(|id| self.entries.remove(&id)) else {
                return Err(handle);
            };
            Some(entry.handle)
        };
        let (id, peer) = (ConnectionId(self.count()), network(peer));
        let entry = Entry { peer, state: State::Unauthenticated, changed: id.0, handle };
        self.entries.insert(id, entry);
        Ok(Opened { id, evicted })
    }

    /// Returns the oldest unauthenticated connection of the address with the most of them.
    fn unauthenticated(&self) -> Option<ConnectionId> {
        let all = || self.entries.iter().filter(|(_, it)| it.state == State::Unauthenticated);
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        all().for_each(|(_, it)| *counts.entry(it.peer).or_default() += 1);
        let order = |(id, it): &(&ConnectionId, &Entry<H>)| {
            (std::cmp::Reverse(counts.get(&it.peer).copied()), **id)
        };
        all().min_by_key(order).map(|(id, _)| *id)
    }

    /// Returns the longest idle connection of the token with the most connections.
    fn idle(&self) -> Option<ConnectionId> {
        let mut counts: HashMap<usize, usize> = HashMap::new();
        for entry in self.entries.values() {
            if let State::Idle { token } | State::Busy { token } = entry.state {
                *counts.entry(token).or_default() += 1;
            }
        }
        let idle = self.entries.iter().filter_map(|(id, it)| match it.state {
            State::Idle { token } => Some((*id, it, counts.get(&token).copied())),
            State::Unauthenticated | State::Busy { .. } => None,
        });
        let order = |(_, it, count): &(ConnectionId, &Entry<H>, Option<usize>)| {
            (std::cmp::Reverse(*count), it.changed)
        };
        idle.min_by_key(order).map(|(id, _, _)| id)
    }

    /// Marks a connection as authenticated and busy. Returns `false` if the token has too many running
    /// requests; the connection is then authenticated and idle.
    fn begin(&mut self, id: ConnectionId, token: usize) -> bool {
        let is_busy = |state: State| matches!(state, State::Busy { .. });
        let all = self.entries.values().filter(|it| is_busy(it.state)).count();
        let own = self.entries.values().filter(|it| it.state == State::Busy { token }).count();
        let allowed = own < self.max.saturating_sub(all);
        self.set(id, if allowed { State::Busy { token } } else { State::Idle { token } });
        allowed
    }

    /// Marks a connection as idle after a request.
    fn end(&mut self, id: ConnectionId, token: usize) {
        self.set(id, State::Idle { token });
    }

    fn close(&mut self, id: ConnectionId) {
        self.entries.remove(&id);
    }

    fn set(&mut self, id: ConnectionId, state: State) {
        let changed = self.count();
        // An evicted connection has no entry.
        if let Some(entry) = self.entries.get_mut(&id) {
            (entry.state, entry.changed) = (state, changed);
        }
    }

    /// Returns the number of open connections of the network that an address belongs to.
    fn of_source(&self, peer: IpAddr) -> usize {
        let network = network(peer);
        self.entries.values().filter(|it| it.peer == network).count()
    }

    fn is_authenticated(&self, id: ConnectionId) -> bool {
        self.entries.get(&id).is_some_and(|it| it.state != State::Unauthenticated)
    }
}

/// Returns the network that one client usually owns: an IPv4 address, or the first 64 bits of IPv6.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
    }
}

/// All open connections of a server, shared by its tasks.
#[derive(Debug)]
pub(crate) struct Connections {
    table: Mutex<ConnectionTable<CancellationToken>>,
    /// Wakes the task that accepts connections.
    changed: Notify,
}

impl Connections {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { table: Mutex::new(ConnectionTable::new(max)), changed: Notify::new() })
    }

    /// Adds a connection and closes another one if necessary. Waits while a request runs on every
    /// other connection.
    pub(crate) async fn open(self: &Arc<Self>, peer: IpAddr) -> Connection {
        let mut evicted = CancellationToken::new();
        loop {
            let changed = self.changed.notified();
            match self.table().open(peer, evicted.clone()) {
                Ok(opened) => {
                    opened.evicted.inspect(CancellationToken::cancel);
                    return Connection { all: Arc::clone(self), id: opened.id, evicted };
                }
                Err(handle) => evicted = handle,
            }
            changed.await;
        }
    }

    /// Returns the number of open connections of the network that an address belongs to.
    pub(crate) fn of_source(&self, peer: IpAddr) -> usize {
        self.table().of_source(peer)
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable<CancellationToken>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open connection of a server. Dropping this value removes it from the table.
#[derive(Debug)]
pub(crate) struct Connection {
    all: Arc<Connections>,
    id: ConnectionId,
    /// Cancelled when the connection must be closed for a new one.
    pub(crate) evicted: CancellationToken,
}

impl Connection {
    /// Records that a request with this token runs. `None` if the token has too many running requests.
    pub(crate) fn begin(&self, token: usize) -> Option<RunningRequest> {
        let begun = self.all.table().begin(self.id, token);
        // An idle connection can be closed for a new one.
        if !begun {
            self.all.changed.notify_waiters();
        }
        begun.then(|| RunningRequest { all: Arc::clone(&self.all), id: self.id, token })
    }

    /// Returns whether a valid token was sent on this connection.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.all.table().is_authenticated(self.id)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.table().close(self.id);
        self.all.changed.notify_waiters();
    }
}

/// A running request. Dropping this value marks its connection as idle.
#[derive(Debug)]
pub(crate) struct RunningRequest {
    all: Arc<Connections>,
    id: ConnectionId,
    token: usize,
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.all.table().end(self.id, self.token);
        self.all.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn open(
        table: &mut ConnectionTable<&'static str>,
        peer: IpAddr,
        name: &'static str,
    ) -> Opened<&'static str> {
        table.open(peer, name).unwrap()
    }

    #[test]
    fn f14_oldest_unauthenticated_connection_is_evicted_first() {
        let mut table = ConnectionTable::new(3);
        let client = open(&mut table, A, "client").id;
        assert!(table.begin(client, 0));
        table.end(client, 0);
        open(&mut table, A, "first");
        open(&mut table, A, "second");
        assert_eq!(open(&mut table, A, "third").evicted, Some("first"));
        assert_eq!(open(&mut table, A, "fourth").evicted, Some("second"));
        assert!(table.is_authenticated(client));
    }

    #[test]
    fn f14_address_with_most_unauthenticated_connections_loses_one_first() {
        let mut table = ConnectionTable::new(4);
        open(&mut table, B, "client");
        for name in ["first", "second", "third"] {
            open(&mut table, A, name);
        }
        assert_eq!(open(&mut table, A, "fourth").evicted, Some("first"));
        assert_eq!(open(&mut table, A, "fifth").evicted, Some("second"));
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let parsed = |text: &str| network(text.parse().unwrap());
        assert_eq!(parsed("2001:db8::1"), parsed("2001:db8::ffff:2"));
        assert_ne!(parsed("2001:db8::1"), parsed("2001:db8:0:1::1"));
        assert_eq!(parsed("::ffff:192.0.2.1"), A);
    }

    #[test]
    fn f14_idle_connection_of_the_token_with_most_connections_is_evicted_next() {
        let mut table = ConnectionTable::new(4);
        let lone = open(&mut table, A, "lone").id;
        let many =
            [open(&mut table, B, "x").id, open(&mut table, B, "y").id, open(&mut table, B, "z").id];
        assert!(table.begin(lone, 0));
        table.end(lone, 0);
        for id in many {
            assert!(table.begin(id, 1));
            table.end(id, 1);
        }
        assert!(table.begin(many[0], 1), "a busy connection is not evicted");
        assert_eq!(open(&mut table, A, "new").evicted, Some("y"));
        assert!(table.is_authenticated(lone));
    }

    #[test]
    fn connection_waits_if_a_request_runs_on_every_other_one() {
        let mut table = ConnectionTable::new(2);
        let (one, two) = (open(&mut table, A, "one").id, open(&mut table, A, "two").id);
        assert!(table.begin(one, 0));
        assert!(table.begin(two, 1));
        assert_eq!(table.open(B, "three"), Err("three"));
        table.end(one, 0);
        assert_eq!(open(&mut table, B, "three").evicted, Some("one"));
        table.end(one, 0);
        assert!(!table.is_authenticated(one), "an evicted connection stays removed");
    }

    #[test]
    fn f14_running_requests_of_one_token_leave_room_for_other_tokens() {
        let mut table = ConnectionTable::new(256);
        let mut running = |token: usize| {
            let mut running = 0;
            for _ in 0..1000 {
                let id = table.open(A, ()).unwrap().id;
                running += usize::from(table.begin(id, token));
            }
            running
        };
        assert_eq!([running(0), running(1), running(2), running(3)], [128, 64, 32, 16]);
    }
}
