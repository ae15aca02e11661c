//! A queue that shares the starts of boxes fairly between tenants, and within a tenant between principals.
//!
//! A limited number of boxes start at once. Other starts wait. Tenants take turns, and the principals of a
//! tenant take turns, so a tenant with many starts delays another tenant by one start at most.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_model::caller::{Principal, TenantId};
use tokio::sync::oneshot;

use super::identity::Identity;
use super::problem::{Problem, ProblemKind};

/// The maximum number of waiting starts of a tenant.
const MAX_WAITING: usize = 64;

/// The queue of starts.
pub(crate) struct StartQueue {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// The number of starts that can run now.
    free: usize,
    /// The tenants with waiting starts. The first one is the next.
    tenants: VecDeque<TenantQueue>,
}

#[derive(Debug)]
struct TenantQueue {
    tenant: TenantId,
    /// The principals with waiting starts. The first one is the next.
    principals: VecDeque<(Principal, VecDeque<oneshot::Sender<Turn>>)>,
}

impl TenantQueue {
    fn len(&self) -> usize {
        self.principals.iter().map(|(_, waiting)| waiting.len()).sum()
    }
}

/// The permission to start one box. Dropping the value lets the next start run.
#[derive(Debug)]
pub(crate) struct Turn {
    state: Arc<Mutex<State>>,
}

impl StartQueue {
    /// Makes a queue that lets this many starts run at once.
    pub(crate) fn new(starts: usize) -> Self {
        let state = State { free: starts.max(1), tenants: VecDeque::new() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Waits until the sender may start a box. Refuses a start if too many of the tenant wait.
    pub(crate) async fn wait_for_turn(&self, who: &Identity) -> Result<Turn, Problem> {
        let (tenant, principal) = (who.tenant().clone(), who.caller.principal.clone());
        let turn = self.enter(tenant, principal)?;
        turn.await.map_err(|_| Problem::internal("the queue of starts was closed"))
    }

    /// Adds a start to the queue.
    fn enter(
        &self,
        tenant: TenantId,
        principal: Principal,
    ) -> Result<oneshot::Receiver<Turn>, Problem> {
        let (sender, receiver) = oneshot::channel();
        let mut state = lock(&self.state);
        state.remove_abandoned();
        let known = state.tenants.iter().position(|it| it.tenant == tenant);
        let at = known.unwrap_or_else(|| {
            state.tenants.push_back(TenantQueue { tenant, principals: VecDeque::new() });
            state.tenants.len() - 1
        });
        if let Some(queue) = state.tenants.get_mut(at) {
            if queue.len() >= MAX_WAITING {
                let detail = format!("{MAX_WAITING} starts of the tenant wait already; try again");
                return Err(Problem::new(ProblemKind::TOO_MANY, detail).retry_after(5));
            }
            match queue.principals.iter_mut().find(|(known, _)| *known == principal) {
                Some((_, waiting)) => waiting.push_back(sender),
                None => queue.principals.push_back((principal, VecDeque::from([sender]))),
            }
        }
        drop(state);
        serve(&self.state);
        Ok(receiver)
    }
}

impl State {
    /// Removes starts whose clients do not wait any more.
    fn remove_abandoned(&mut self) {
        for queue in &mut self.tenants {
            for (_, waiting) in &mut queue.principals {
                waiting.retain(|sender| !sender.is_closed());
            }
            queue.principals.retain(|(_, waiting)| !waiting.is_empty());
        }
        self.tenants.retain(|queue| !queue.principals.is_empty());
    }

    /// Takes the next start from the queue, if one can run.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        if self.free == 0 {
            return None;
        }
        self.remove_abandoned();
        let mut queue = self.tenants.pop_front()?;
        let (principal, mut waiting) = queue.principals.pop_front()?;
        let sender = waiting.pop_front()?;
        if !waiting.is_empty() {
            queue.principals.push_back((principal, waiting));
        }
        if !queue.principals.is_empty() {
            self.tenants.push_back(queue);
        }
        self.free -= 1;
        Some(sender)
    }
}

/// Lets waiting starts run, as long as there are free ones.
fn serve(state: &Arc<Mutex<State>>) {
    loop {
        let Some(sender) = lock(state).next() else { return };
        // A client that left in this moment returns the turn, which is dropped and serves the next one.
        drop(sender.send(Turn { state: Arc::clone(state) }));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.state).free += 1;
        serve(&self.state);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Waiting {
        name: &'static str,
        receiver: oneshot::Receiver<Turn>,
    }

    fn enter(queue: &StartQueue, tenant: &str, user: u32, name: &'static str) -> Waiting {
        let receiver = queue.enter(tenant.parse().unwrap(), Principal::user(user)).unwrap();
        Waiting { name, receiver }
    }

    /// Ends one start after the other, and returns the order in which the others got their turns.
    fn order(mut waiting: Vec<Waiting>, mut turn: Turn) -> Vec<&'static str> {
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(turn);
            let next = waiting.iter_mut().position(|it| !it.receiver.is_empty()).unwrap();
            let mut next = waiting.remove(next);
            turn = next.receiver.try_recv().unwrap();
            order.push(next.name);
        }
        order
    }

    #[test]
    fn tenants_and_their_principals_take_turns() {
        let queue = StartQueue::new(1);
        let running = enter(&queue, "a", 1, "first").receiver.try_recv().unwrap();
        let waiting = vec![
            enter(&queue, "a", 1, "a1"),
            enter(&queue, "a", 1, "a1 again"),
            enter(&queue, "a", 1, "a1 third"),
            enter(&queue, "a", 2, "a2"),
            enter(&queue, "b", 1, "b1"),
        ];
        assert_eq!(order(waiting, running), ["a1", "b1", "a2", "a1 again", "a1 third"]);
    }

    #[test]
    fn f14_start_is_refused_when_too_many_of_the_tenant_wait() {
        let queue = StartQueue::new(1);
        let _running = enter(&queue, "a", 1, "first").receiver.try_recv().unwrap();
        let mut waiting: Vec<Waiting> =
            (0..MAX_WAITING).map(|_| enter(&queue, "a", 1, "a1")).collect();
        let refused = queue.enter("a".parse().unwrap(), Principal::user(2)).unwrap_err();
        assert_eq!(refused.kind, ProblemKind::TOO_MANY);
        enter(&queue, "b", 1, "control: another tenant can wait");
        waiting.pop(); // a client left
        enter(&queue, "a", 1, "control: its place is free");
    }

    #[test]
    fn start_whose_client_left_gives_its_turn_to_the_next() {
        let queue = StartQueue::new(1);
        let running = enter(&queue, "a", 1, "first").receiver.try_recv().unwrap();
        drop(enter(&queue, "a", 1, "left"));
        let mut next = enter(&queue, "a", 1, "next");
        drop(running);
        drop(next.receiver.try_recv().unwrap());
        assert!(enter(&queue, "a", 1, "later").receiver.try_recv().is_ok());
    }
}
