//! The queue for the program slots of a server, which shares the slots fairly between clients.
//!
//! A free slot goes to the waiting client with the fewest running programs, and clients with the same
//! number take turns. For each client without a running program, one slot stays free (for at most half
//! of the slots together). So a client with one call does not wait for the calls of another client.
//!
//! [`FairQueue`] is pure and decides which call starts next. [`ProgramSlots`] lets calls wait for a slot.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The number of a client of a server, for example the index of its token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientNumber(pub usize);

/// The number of a waiting call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticket(u64);

/// The waiting and running calls of all clients.
#[derive(Debug)]
struct FairQueue<T> {
    slots: usize,
    /// The number of clients that the server expects.
    clients: usize,
    running: BTreeMap<ClientNumber, usize>,
    waiting: BTreeMap<ClientNumber, VecDeque<(Ticket, T)>>,
    /// The client that got the last slot.
    last: ClientNumber,
    next_ticket: u64,
}

impl<T> FairQueue<T> {
    fn new(slots: usize) -> Self {
        Self {
            slots,
            clients: 1,
            running: BTreeMap::new(),
            waiting: BTreeMap::new(),
            last: ClientNumber::default(),
            next_ticket: 0,
        }
    }

    /// Adds a call to the end of the queue of its client.
    fn push(&mut self, client: ClientNumber, call: T) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.waiting.entry(client).or_default().push_back((ticket, call));
        ticket
    }

    /// Removes a waiting call. Does nothing if the call has started.
    fn remove(&mut self, client: ClientNumber, ticket: Ticket) {
        if let Some(calls) = self.waiting.get_mut(&client) {
            calls.retain(|(waiting, _)| *waiting != ticket);
        }
        self.waiting.retain(|_, calls| !calls.is_empty());
    }

    /// Takes the next call that gets a slot, if a slot is free for a waiting client.
    fn start_next(&mut self) -> Option<(ClientNumber, T)> {
        let may_start = |client: &&ClientNumber| self.may_start(**client);
        // Clients after the last one come first, so that clients take turns.
        let order = |client: &&ClientNumber| (self.running_of(**client), **client <= self.last);
        let client = *self.waiting.keys().filter(may_start).min_by_key(order)?;
        let calls = self.waiting.get_mut(&client)?;
        let (_, call) = calls.pop_front()?;
        if calls.is_empty() {
            self.waiting.remove(&client);
        }
        *self.running.entry(client).or_default() += 1;
        self.last = client;
        Some((client, call))
    }

    /// Frees the slot of a call that has ended.
    fn release(&mut self, client: ClientNumber) {
        if let Some(running) = self.running.get_mut(&client) {
            *running -= 1;
        }
        self.running.retain(|_, running| *running > 0);
    }

    /// Returns whether a client gets one more slot: its first one if any is free, another one if a
    /// slot stays free for each client that has none.
    fn may_start(&self, client: ClientNumber) -> bool {
        let free = self.slots.saturating_sub(self.running.values().sum());
        let without_any = self.clients.saturating_sub(self.running.len());
        let reserved = if self.running_of(client) == 0 { 0 } else { without_any };
        free > reserved.min(self.slots / 2)
    }

    fn running_of(&self, client: ClientNumber) -> usize {
        self.running.get(&client).copied().unwrap_or(0)
    }
}

/// The slots for programs that a server runs at the same time, and the calls that wait for a slot.
#[derive(Debug)]
pub(super) struct ProgramSlots(Mutex<FairQueue<oneshot::Sender<SlotGuard>>>);

impl ProgramSlots {
    pub(super) fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(FairQueue::new(slots))))
    }

    /// Sets the number of clients that the server expects. At least one is expected.
    pub(super) fn expect_clients(&self, clients: usize) {
        self.queue().clients = clients.max(1);
    }

    /// Waits for a slot for a program of `client`. Dropping the future leaves the queue.
    pub(super) async fn acquire(self: &Arc<Self>, client: ClientNumber) -> SlotGuard {
        let (sender, started) = oneshot::channel();
        let ticket = self.queue().push(client, sender);
        let _waiting = Waiting { slots: self, client, ticket };
        self.dispatch();
        match started.await {
            Ok(slot) => slot,
            // The sender is dropped only together with the queue, which this future borrows.
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives free slots to waiting calls.
    fn dispatch(self: &Arc<Self>) {
        loop {
            let Some((client, call)) = self.queue().start_next() else { return };
            // If the call no longer waits, the guard is dropped, which frees its slot again.
            drop(call.send(SlotGuard { slots: Arc::clone(self), client }));
        }
    }

    fn queue(&self) -> MutexGuard<'_, FairQueue<oneshot::Sender<SlotGuard>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiting call, which leaves the queue when this value is dropped.
struct Waiting<'a> {
    slots: &'a ProgramSlots,
    client: ClientNumber,
    ticket: Ticket,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.slots.queue().remove(self.client, self.ticket);
    }
}

/// The slot of a running program, which is freed when this value is dropped.
#[derive(Debug)]
pub(super) struct SlotGuard {
    slots: Arc<ProgramSlots>,
    client: ClientNumber,
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slots.queue().release(self.client);
        self.slots.dispatch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOD: ClientNumber = ClientNumber(0);
    const OTHER: ClientNumber = ClientNumber(1);

    fn queue(slots: usize, clients: usize) -> FairQueue<u32> {
        FairQueue { clients, ..FairQueue::new(slots) }
    }

    fn started(queue: &mut FairQueue<u32>) -> Vec<(ClientNumber, u32)> {
        std::iter::from_fn(|| queue.start_next()).collect()
    }

    #[test]
    fn single_client_gets_all_slots_in_the_order_of_its_calls() {
        let mut queue = queue(4, 1);
        for call in 0..6 {
            queue.push(FLOOD, call);
        }
        assert_eq!(started(&mut queue), [(FLOOD, 0), (FLOOD, 1), (FLOOD, 2), (FLOOD, 3)]);
        queue.release(FLOOD);
        assert_eq!(started(&mut queue), [(FLOOD, 4)]);
    }

    #[test]
    fn f14_first_call_of_a_client_starts_although_another_client_floods_the_queue() {
        let mut queue = queue(32, 2);
        for call in 0..1000 {
            queue.push(FLOOD, call);
        }
        assert_eq!(started(&mut queue).len(), 31, "one slot stays free for the other client");
        queue.push(OTHER, 7);
        assert_eq!(started(&mut queue), [(OTHER, 7)]);
        // The next free slot goes to the client with fewer running programs.
        queue.push(OTHER, 8);
        queue.release(FLOOD);
        assert_eq!(started(&mut queue), [(OTHER, 8)]);
        // The slot of a client that has ended stays free for its next call.
        queue.release(OTHER);
        queue.release(OTHER);
        assert_eq!(started(&mut queue), [(FLOOD, 31)]);
        queue.push(OTHER, 9);
        assert_eq!(started(&mut queue), [(OTHER, 9)]);
    }

    #[test]
    fn f14_clients_with_equal_numbers_of_programs_take_turns() {
        let mut queue = queue(1, 3);
        for call in 0..3 {
            for client in 0..3 {
                queue.push(ClientNumber(client), call);
            }
        }
        let mut order = Vec::new();
        while let Some((client, call)) = queue.start_next() {
            assert_eq!(queue.start_next(), None, "there is one slot");
            order.push((client.0, call));
            queue.release(client);
        }
        let turns = [1, 2, 0, 1, 2, 0, 1, 2, 0];
        assert_eq!(order.iter().map(|(client, _)| *client).collect::<Vec<_>>(), turns);
    }

    #[test]
    fn at_most_half_of_the_slots_are_reserved_for_clients_without_programs() {
        let mut queue = queue(32, 1000);
        for call in 0..100 {
            queue.push(FLOOD, call);
        }
        assert_eq!(started(&mut queue).len(), 16);
        for client in 1..100 {
            queue.push(ClientNumber(client), 0);
        }
        assert_eq!(started(&mut queue).len(), 16);
    }

    #[test]
    fn removed_call_never_starts() {
        let mut queue = queue(1, 1);
        queue.push(FLOOD, 0);
        assert_eq!(started(&mut queue), [(FLOOD, 0)]);
        let ticket = queue.push(FLOOD, 1);
        queue.push(FLOOD, 2);
        queue.remove(FLOOD, ticket);
        queue.release(FLOOD);
        assert_eq!(started(&mut queue), [(FLOOD, 2)]);
    }

    proptest::proptest! {
        #[test]
        fn queue_never_exceeds_its_slots_and_serves_every_call(
            slots in 1..6_usize,
            clients in 1..5_usize,
            calls in proptest::collection::vec(0..5_usize, 0..60),
        ) {
            let mut queue = FairQueue { clients, ..FairQueue::new(slots) };
            let (mut running, mut served) = (VecDeque::new(), 0);
            let mut waiting = calls.iter().enumerate();
            loop {
                let call = waiting.next();
                if let Some((number, client)) = call {
                    queue.push(ClientNumber(*client), number);
                }
                while let Some((client, _)) = queue.start_next() {
                    running.push_back(client);
                    served += 1;
                }
                proptest::prop_assert!(running.len() <= slots);
                // Calls arrive faster than they end.
                if call.is_some_and(|(number, _)| number % 3 != 0) {
                    continue;
                }
                match running.pop_front() {
                    Some(client) => queue.release(client),
                    None if call.is_none() => break,
                    None => {}
                }
            }
            proptest::prop_assert_eq!(served, calls.len());
        }
    }

    #[tokio::test]
    async fn f14_slot_is_granted_to_a_second_client_while_the_first_one_holds_all_it_can_get() {
        let slots = ProgramSlots::new(2);
        slots.expect_clients(2);
        let held = slots.acquire(FLOOD).await;
        let mut second = Box::pin(slots.acquire(FLOOD));
        assert!(is_pending(second.as_mut()).await, "the flooding client waits");
        let other = slots.acquire(OTHER).await;
        // Both clients have a slot. The next free one goes to the waiting call.
        drop(held);
        let second = second.await;
        // A call that gives up leaves the queue.
        let mut third = Box::pin(slots.acquire(FLOOD));
        assert!(is_pending(third.as_mut()).await);
        drop(third);
        drop((second, other));
        assert!(slots.queue().waiting.is_empty() && slots.queue().running.is_empty());
    }

    /// Polls a future once and returns whether it still waits.
    async fn is_pending(mut future: std::pin::Pin<&mut impl Future<Output = SlotGuard>>) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(future.as_mut().poll(context).is_pending())
        })
        .await
    }
}
