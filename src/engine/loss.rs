//! Notification of holders about a loss, on any runtime.
//!
//! The watchdog reports losses on the client's runtime. A holder that listens on another runtime
//! has a timer there as well, because a blocked client's runtime would report the loss too late.
//! The clients of a group may have several runtimes, so a group's holder has a timer wherever there is a runtime.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::select_all;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Tenure;
use crate::{error::LostReason, wire::HoldMode};

/// The signals for tasks that watch one hold.
#[derive(Debug, Default)]
pub(super) struct HoldSignals {
    lost: CancellationToken,
    ended: CancellationToken,
}

impl HoldSignals {
    /// A token that is cancelled at the loss of the hold.
    pub(super) fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// A token that is cancelled at the end of the hold, by a release or otherwise.
    pub(super) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }
}

impl Drop for HoldSignals {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// The client, the key and the mode of a lock: what makes two members the same lock.
pub(super) type MemberId = (Uuid, Bytes, HoldMode);

/// A hold of a group, as each of its members knows it.
#[derive(Debug)]
pub(crate) struct GroupHold {
    /// Its position in the order of all acquisitions of groups.
    pub(super) number: u64,
    /// All members of the group, held or not, sorted.
    pub(super) members: Vec<MemberId>,
    pub(super) tenures: Vec<Weak<Tenure>>,
    /// How many members the group needs.
    pub(super) need: usize,
    /// The longest time that a member has to answer, if the group can do without it.
    pub(super) answer_wait: Option<Duration>,
}

impl GroupHold {
    pub(super) fn needs_all(&self) -> bool {
        self.need == self.members.len()
    }

    /// Says for the log whether the group still holds; `None` once its release has begun.
    pub(super) fn state(self: &Arc<Self>) -> Option<String> {
        let now = Instant::now();
        let tenures = self.tenures.iter().filter_map(Weak::upgrade);
        let is_held = |tenure: &Arc<Tenure>| tenure.hold_set().has_live_hold_of(self);
        let tenures: Vec<_> = tenures.filter(is_held).collect();
        if tenures.len() < self.tenures.len() {
            return None;
        }
        let is_left = |tenure: &&Arc<Tenure>| tenure.lost_reason(now).is_none();
        let left = tenures.iter().filter(is_left).count();
        let (members, need) = (self.members.len(), self.need);
        let state = if left < need { "lost" } else { "still held" };
        Some(format!(
            "{state}: {left} of {members} members are left, {need} needed"
        ))
    }
}

/// The current runtime, if it is not the `client`'s. There, the watchdog reports every loss in
/// time, unless that runtime is blocked. Another runtime needs a timer of its own.
pub(crate) fn elsewhere(client: &Handle) -> Option<Handle> {
    Handle::try_current()
        .ok()
        .filter(|here| here.id() != client.id())
}

/// The reason of the first loss, if fewer than `need` tenures are left.
pub(crate) fn lost_reason(tenures: &[Arc<Tenure>], need: usize) -> Option<LostReason> {
    let now = Instant::now();
    let mut lost = tenures.iter().filter_map(|tenure| tenure.lost_reason(now));
    let first = lost.next()?;
    (tenures.len() - 1 - lost.count() < need).then_some(first)
}

/// Completes when fewer than `need` tenures are left.
pub(crate) async fn loss_of_group(tenures: &[Arc<Tenure>], need: usize) -> LostReason {
    let mut lost: Vec<_> = tenures
        .iter()
        .map(|tenure| Box::pin(tenure.token().cancelled_owned()))
        .collect();
    // A completed future must not be polled again.
    let listen = |context: &mut Context<'_>| {
        lost.retain_mut(|lost| lost.as_mut().poll(context).is_pending());
    };
    loss(tenures, need, Handle::try_current().is_ok(), listen).await
}

/// Cancels `token` when fewer than `need` tenures are left. Ends when all holds have ended, because
/// leaked holds are released without the guard. Keeps no tenure alive.
pub(crate) fn cancel_at_the_loss_of_group(
    tenures: &[Arc<Tenure>],
    need: usize,
    token: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let spare = tenures.len() - need;
    let watched: Vec<_> = tenures
        .iter()
        .map(|tenure| (Arc::downgrade(tenure), tenure.token()))
        .collect();
    async move {
        loop {
            let (mut lost, mut until, mut changes) = (0, None, Vec::new());
            for (tenure, lost_token) in &watched {
                let held = tenure.upgrade().filter(|tenure| tenure.live_count() > 0);
                // Registered before `valid_until` is read: a change in between is not missed.
                let held = held.map(|tenure| (tenure.shortened(), tenure.valid_until()));
                match held {
                    _ if lost_token.is_cancelled() => lost += 1,
                    Some((_, end)) if end <= Instant::now() => lost += 1,
                    Some((shortened, end)) => {
                        until = Some(until.map_or(end, |until| end.min(until)));
                        let lost_token = lost_token.clone();
                        changes.push(Box::pin(lost_token.run_until_cancelled_owned(shortened)));
                    }
                    None => {}
                }
            }
            if lost > spare {
                return token.cancel();
            }
            let Some(until) = until else {
                return;
            };
            let _ = timeout_at(until, select_all(changes)).await;
        }
    }
}

/// Completes when `tenure` is lost.
pub(crate) async fn loss_of(tenure: &Arc<Tenure>, client: &Handle) -> LostReason {
    let token = tenure.token();
    let mut lost = pin!(token.cancelled());
    let listen = |context: &mut Context<'_>| {
        let _ = lost.as_mut().poll(context);
    };
    let has_timer = elsewhere(client).is_some();
    loss(std::slice::from_ref(tenure), 1, has_timer, listen).await
}

/// Completes with the reason when fewer than `need` tenures are left. Reads the clock before the signals: a process that was
/// stopped then sees its loss at the first poll.
async fn loss(
    tenures: &[Arc<Tenure>],
    need: usize,
    has_timer: bool,
    mut listen: impl FnMut(&mut Context<'_>),
) -> LostReason {
    let next = || {
        let live = tenures
            .iter()
            .filter(|tenure| tenure.lost_reason(Instant::now()).is_none());
        live.map(|tenure| tenure.valid_until()).min()
    };
    let shortened = |tenure: &Arc<Tenure>| Box::pin(tenure.shortened());
    let timed = if has_timer { tenures } else { &[] };
    let mut shrunk: Vec<_> = timed.iter().map(shortened).collect();
    let until = has_timer.then(next).flatten();
    let mut timer = until.map(|until| Box::pin(sleep_until(until)));
    poll_fn(|context| {
        if let Some(reason) = lost_reason(tenures, need) {
            return Poll::Ready(reason);
        }
        listen(context);
        for (shrunk, tenure) in shrunk.iter_mut().zip(tenures) {
            while shrunk.as_mut().poll(context).is_ready() {
                *shrunk = shortened(tenure);
                if let (Some(timer), Some(until)) = (&mut timer, next()) {
                    timer.as_mut().reset(until);
                }
            }
        }
        loop {
            if let Some(reason) = lost_reason(tenures, need) {
                return Poll::Ready(reason);
            }
            let Some(timer) = &mut timer else {
                return Poll::Pending;
            };
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            // A renewal has extended the validity, or the group can do without the lost tenure.
            if let Some(until) = next() {
                timer.as_mut().reset(until);
            }
        }
    })
    .await
}

/// Cancels `token` when the clock ends the holds, as long as there is a tenure.
pub(crate) async fn cancel_at_the_end(tenure: Weak<Tenure>, token: CancellationToken) {
    let next = || {
        let tenure = tenure.upgrade()?;
        // Registered before `valid_until` is read: a change in between is not missed.
        Some((tenure.shortened(), tenure.valid_until()))
    };
    while let Some((shrunk, until)) = next() {
        let _ = timeout_at(until, shrunk).await;
        let Some(tenure) = tenure.upgrade() else {
            return;
        };
        if tenure.lost_reason(Instant::now()).is_some() {
            return token.cancel();
        }
    }
}
