//! Operations of a group leave together, in one call for each lane.

use std::{any::Any, cell::RefCell, sync::Arc};

use super::{Complete, Lane, Redis, for_each_caught};

thread_local! {
    /// What this thread holds back; `None` while it holds back nothing.
    static HELD_BACK: RefCell<Option<HeldBack>> = const { RefCell::new(None) };
}

/// The operations of some clients, by lane.
struct HeldBack {
    clients: Clients,
    parts: Vec<Box<dyn Part>>,
}

/// Clients by the addresses of their connections.
pub(crate) type Clients = Arc<[usize]>;

pub(crate) fn address(redis: &Arc<dyn Redis>) -> usize {
    Arc::as_ptr(redis).addr()
}

/// The operations of a group in one lane.
trait Part: Any {
    fn leave(self: Box<Self>);
}

struct InLane<C: Complete> {
    lane: Arc<Lane<C>>,
    operations: Vec<C>,
}

impl<C: Complete> Part for InLane<C> {
    fn leave(self: Box<Self>) {
        drop(self.lane.submit_group(self.operations));
    }
}

/// Runs `ask`. The operations of `clients` that it submits leave at its end. Within another call, they leave with that one's.
pub(crate) fn send_together<T>(clients: &Clients, ask: impl FnOnce() -> T) -> T {
    let begin = |place: &RefCell<Option<HeldBack>>| {
        let begins = !clients.is_empty() && place.borrow().is_none();
        if begins {
            place.replace(Some(HeldBack {
                clients: clients.clone(),
                parts: Vec::new(),
            }));
        }
        begins
    };
    // A thread that ends may have dropped its place before a guard that another thread-local keeps.
    let begins = HELD_BACK.try_with(begin).unwrap_or(false);
    let _let_go = begins.then(|| LetGo);
    ask()
}

struct LetGo;

impl Drop for LetGo {
    fn drop(&mut self) {
        let parts = exchange(None).map(|held_back| held_back.parts);
        for_each_caught(parts.unwrap_or_default(), |part| part.leave());
    }
}

fn exchange(held_back: Option<HeldBack>) -> Option<HeldBack> {
    let exchange = |place: &RefCell<_>| place.replace(held_back);
    HELD_BACK.try_with(exchange).ok().flatten()
}

/// A call that waits within a poll. What it submits leaves at once, also within [`send_together`].
#[cfg(feature = "blocking")]
pub(crate) struct Apart(Option<HeldBack>);

#[cfg(feature = "blocking")]
impl Apart {
    pub(crate) fn new() -> Self {
        Self(exchange(None))
    }
}

#[cfg(feature = "blocking")]
impl Drop for Apart {
    fn drop(&mut self) {
        exchange(self.0.take());
    }
}

/// Whether an operation of this client is held back.
pub(in crate::redis) fn holds_back(redis: &Arc<dyn Redis>) -> bool {
    let is_held_back = |place: &RefCell<Option<HeldBack>>| {
        let held_back = place.borrow();
        let clients = held_back.as_ref().map(|held_back| &held_back.clients);
        clients.is_some_and(|clients| clients.contains(&address(redis)))
    };
    HELD_BACK.try_with(is_held_back).unwrap_or(false)
}

/// Holds an operation back until the end of [`send_together`].
pub(super) fn hold_back<C: Complete>(lane: Arc<Lane<C>>, operation: C) {
    HELD_BACK.with_borrow_mut(|held_back| {
        let parts = &mut held_back.as_mut().expect("the caller has looked").parts;
        let same = parts.iter_mut().rev().find_map(|part| {
            let part: &mut dyn Any = &mut **part;
            let part = part.downcast_mut::<InLane<C>>()?;
            Arc::ptr_eq(&part.lane, &lane).then_some(part)
        });
        match same {
            Some(part) => part.operations.push(operation),
            None => parts.push(Box::new(InLane {
                lane,
                operations: vec![operation],
            })),
        }
    });
}
