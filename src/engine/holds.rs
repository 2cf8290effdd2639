//! Who in this process holds what: a slot for each owner and lock in use, and a tenure for as long as it is held.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    holding::{Duty, HoldId, Holding, Phase, validity},
    uses::{Use, UseTable},
};
use crate::{
    durability::Durability,
    error::{Error, LostReason},
    owner::OwnerId,
    sync::{Mutex, MutexGuard, lock},
    wire::{Count, Lease, Place},
};

/// The place of one owner on one lock: its operations come one after the other, and so do its tenures.
pub(crate) struct Slot {
    /// The owner as it travels.
    pub(super) owner: Bytes,
    /// Held while an operation is on its way (invariant 4).
    pub(super) turn: tokio::sync::Mutex<()>,
    /// What the owner holds, by its counts.
    tenures: Mutex<Tenures>,
    /// How many of the owner's acquisitions have a place in the lock's queue.
    pub(super) in_line: AtomicUsize,
    /// The server may have given the owner a place there.
    pub(super) has_place: AtomicBool,
}

type Tenures = [Option<Arc<Tenure>>; Count::ALL];

/// A lock's name, and an owner.
type SlotKey = (Arc<str>, OwnerId);

/// The use of a slot.
pub(crate) type SlotRef = Use<SlotKey, Slot>;

/// All slots that are in use.
#[derive(Default)]
pub(crate) struct Slots {
    table: Arc<UseTable<SlotKey, Slot>>,
    /// How many tenures there have been.
    tenures: AtomicU64,
}

impl Slots {
    /// The slot of `owner` on the lock `name`.
    pub(super) fn enter(&self, name: &Arc<str>, owner: OwnerId) -> SlotRef {
        self.table.enter((name.clone(), owner), || Slot {
            owner: owner.field(),
            turn: tokio::sync::Mutex::new(()),
            tenures: Mutex::default(),
            in_line: AtomicUsize::new(0),
            has_place: AtomicBool::new(false),
        })
    }

    /// What this process holds on `name` now, or on everything.
    pub(super) fn tenures(&self, name: Option<&str>) -> Vec<Arc<Tenure>> {
        let matches = |key: &SlotKey| name.is_none_or(|name| *key.0 == *name);
        self.table.collect(|key, slot| match matches(key) {
            true => slot.tenures(),
            false => Vec::new(),
        })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

impl Slot {
    /// Completes when the owner's other operations are done.
    pub(super) async fn take_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        match self.turn.try_lock() {
            Ok(turn) => turn,
            // Boxed, as it is seldom needed.
            Err(_) => Box::pin(self.turn.lock()).await,
        }
    }

    pub(super) fn tenure(&self, count: Count) -> Option<Arc<Tenure>> {
        lock(&self.tenures)[count as usize].clone()
    }

    pub(super) fn tenures(&self) -> Vec<Arc<Tenure>> {
        lock(&self.tenures).iter().flatten().cloned().collect()
    }

    /// A hold whose guard is gone, to be released by the caller.
    pub(super) fn take_dropped(&self) -> Option<(Arc<Tenure>, HoldId)> {
        let of = |tenure: Arc<Tenure>| tenure.take_dropped().map(|id| (tenure, id));
        self.tenures().into_iter().find_map(of)
    }
}

impl Slots {
    /// Notes a hold of `slot` that the server granted: one more of `tenure`, or the first of a new one. `None` when it cannot be
    /// relied upon any more.
    pub(super) fn grant(
        &self,
        slot: &SlotRef,
        tenure: Option<Arc<Tenure>>,
        grant: Grant<'_>,
    ) -> Option<(Arc<Tenure>, HoldId)> {
        let Grant {
            place,
            sent,
            lease,
            watched,
            durability,
            token,
        } = grant;
        let now = Instant::now();
        if let Some(tenure) = tenure {
            let mut holding = tenure.holding();
            // What the clock has ended is not brought back: its holders may have been told already.
            if holding.lost(now).is_none() {
                let id = holding.grant(sent, lease, watched);
                drop(holding);
                tenure.count_as(token, durability);
                return Some((tenure, id));
            }
            let reason = holding.lost;
            drop(holding);
            // Forced open, or closed: what was granted before that is gone as well.
            if reason.is_some_and(|reason| reason != LostReason::Expired) {
                return None;
            }
            tenure.lose(LostReason::Expired);
        }
        if now >= validity(sent, lease) {
            return None;
        }
        if place.count == Count::Read
            && let Some(writing) = slot.tenure(Count::Write)
        {
            // The key of both lives by the longer lease.
            writing.lives_on();
        }
        let mut holding = Holding::new(sent);
        let id = holding.grant(sent, lease, watched);
        let tenure = Arc::new(Tenure {
            slot: slot.clone(),
            place: place.clone(),
            holding: Mutex::new(holding),
            told: Mutex::new(None),
            durability: Mutex::new(smallvec![durability]),
            fence: token.map(OnceLock::from).unwrap_or_default(),
            since: sent,
            is_suspected: AtomicBool::new(false),
            number: self.tenures.fetch_add(1, Ordering::Relaxed),
            put_off: AtomicBool::new(false),
            lives_on: AtomicBool::new(false),
            on_agenda: Mutex::new(None),
        });
        lock(&slot.tenures)[place.count as usize] = Some(tenure.clone());
        Some((tenure, id))
    }
}

/// What was granted.
pub(super) struct Grant<'a> {
    pub(super) place: &'a Arc<Place>,
    pub(super) sent: Instant,
    pub(super) lease: &'a Lease,
    pub(super) watched: bool,
    pub(super) durability: Durability,
    pub(super) token: Option<i64>,
}

/// One owner's unbroken time on one lock: from its first hold to the release of its last, or to the loss of all.
pub(crate) struct Tenure {
    slot: SlotRef,
    pub(super) place: Arc<Place>,
    holding: Mutex<Holding>,
    /// Cancelled at the loss; made when somebody asks for it.
    told: Mutex<Option<CancellationToken>>,
    /// Those that its holds were acquired with, each once.
    durability: Mutex<SmallVec<[Durability; 1]>>,
    /// The fencing token of the first hold that had one.
    fence: OnceLock<i64>,
    pub(super) since: Instant,
    /// Said to have been waited for by another owner of this client, for so long that it may be waiting itself.
    is_suspected: AtomicBool,
    /// Different from every other tenure's of this client.
    pub(super) number: u64,
    /// When the watchdog looks at it next. Written under the lock of the watchdog's agenda.
    pub(super) on_agenda: Mutex<Option<Instant>>,
    /// The last renewal was put off, as the turn was taken.
    put_off: AtomicBool,
    /// The server may keep it beyond what its holders count on.
    lives_on: AtomicBool,
}

impl Tenure {
    fn holding(&self) -> MutexGuard<'_, Holding> {
        lock(&self.holding)
    }

    pub(super) fn slot(&self) -> &SlotRef {
        &self.slot
    }

    /// How durable its renewals are to be, where so many replicas are listed.
    pub(super) fn durability(&self, listed: usize) -> Durability {
        let of_renewals = |durability: &Durability| durability.of_renewals();
        Durability::strictest(lock(&self.durability).iter().map(of_renewals), listed)
    }

    /// Whether any of its acquisitions waits for replicas, where so many are listed.
    pub(super) fn waits(&self, listed: usize) -> bool {
        lock(&self.durability)
            .iter()
            .any(|durability| durability.waits(listed))
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.place.name
    }

    /// The fencing token that all holds of this tenure show.
    pub(crate) fn fence(&self) -> Option<i64> {
        self.fence.get().copied()
    }

    /// An inner hold was counted: the outermost's token stays (P-M6).
    fn count_as(&self, token: Option<i64>, durability: Durability) {
        let mut durabilities = lock(&self.durability);
        if !durabilities.contains(&durability) {
            durabilities.push(durability);
        }
        drop(durabilities);
        if let Some(token) = token {
            let _ = self.fence.set(token);
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.holding().count()
    }

    pub(crate) fn valid_until(&self) -> Instant {
        self.holding().valid_until
    }

    /// Until when the hold `id` lasts by its own lease.
    pub(super) fn lasts_until(&self, id: HoldId) -> Option<Instant> {
        self.holding().lasts_until(id)
    }

    /// Whether the holds are gone, by what is known and by the clock.
    pub(crate) fn lost(&self, now: Instant) -> Option<LostReason> {
        self.holding().lost(now)
    }

    pub(crate) fn lost_error(&self, reason: LostReason) -> Error {
        Error::Lost {
            name: self.place.name.clone(),
            reason,
        }
    }

    pub(super) fn leak(&self, id: HoldId) {
        self.holding().set_phase(id, Phase::Leaked);
    }

    pub(super) fn take_leaked(&self) -> Option<HoldId> {
        self.holding().take(Phase::Leaked)
    }

    /// The release of `id` begins: it is renewed no more.
    pub(super) fn ending(&self, id: HoldId) {
        self.holding().set_phase(id, Phase::Ending);
    }

    /// The guard of `id` is gone: it is renewed no more, and to be released by whoever comes first.
    pub(super) fn dropped(&self, id: HoldId) {
        self.holding().set_phase(id, Phase::Dropped);
    }

    fn take_dropped(&self) -> Option<HoldId> {
        self.holding().take(Phase::Dropped)
    }

    /// Whether `id` is still to be released, which the caller now does.
    pub(super) fn take_this(&self, id: HoldId) -> bool {
        self.holding().take_this(id)
    }

    /// The holds that somebody counts on.
    pub(super) fn live_count(&self) -> u32 {
        self.holding().live_count()
    }

    /// What a release is to leave behind, as of `sent`: all but `id`, if there is one.
    pub(super) fn release(&self, id: Option<HoldId>, sent: Instant) -> (u32, Option<Lease>) {
        let mut holding = self.holding();
        let (holds, lease) = holding.without(id);
        let lease = lease.cloned();
        if let Some(lease) = &lease {
            holding.shorten(sent, lease);
        }
        (holds, lease)
    }

    /// The release that was sent at `sent` has been done, and has left `lease` in force.
    pub(super) fn released(&self, id: Option<HoldId>, sent: Instant, lease: Option<&Lease>) {
        let mut holding = self.holding();
        if let Some(id) = id {
            holding.remove(id);
        }
        if let Some(lease) = lease {
            holding.shortened(sent, lease, Instant::now());
        }
        let over = holding.count() == 0;
        drop(holding);
        if over {
            self.leave_slot();
        }
    }

    pub(super) fn duty(&self, now: Instant) -> Duty {
        self.holding().duty(now)
    }

    /// Whether its lease has ended by our clock, which is ahead of the server's, and nobody counts on it any more: the server
    /// may keep it for another hundredth of the lease.
    pub(super) fn may_outlive_its_holders(&self, now: Instant) -> bool {
        let holding = self.holding();
        holding.live_count() == 0 && holding.lost(now) == Some(LostReason::Expired)
    }

    /// The server may have been told a longer lease than its holders count on.
    pub(super) fn lives_on(&self) {
        self.lives_on.store(true, Ordering::Relaxed);
    }

    /// Whether the server may keep it although its lease is over.
    pub(super) fn may_live_on(&self) -> bool {
        self.lives_on.load(Ordering::Relaxed)
    }

    /// Whether a renewal may go ahead, given whether it has the turn: it is put off once and not twice. A future that
    /// nobody polls keeps the turn for as long as it likes.
    pub(super) fn may_renew(&self, has_turn: bool) -> bool {
        self.put_off.swap(!has_turn, Ordering::Relaxed) || has_turn
    }

    /// The same, for the first time.
    pub(super) fn suspect(&self) -> bool {
        !self.is_suspected.swap(true, Ordering::Relaxed)
    }

    /// Whether any hold is renewed.
    pub(super) fn is_watched(&self) -> bool {
        let holding = self.holding();
        holding.lost.is_none() && holding.watched().is_some()
    }

    pub(super) fn next_duty(&self) -> Option<Instant> {
        self.holding().next_duty()
    }

    /// The renewal is due at once.
    pub(super) fn hurry(&self, now: Instant) {
        self.holding().renew_at = now;
    }

    pub(super) fn renewed(&self, sent: Instant, lease: &Lease) {
        self.holding().renewed(sent, lease, Instant::now());
    }

    /// All holds are gone. Whoever asked to be told is told.
    pub(super) fn lose(&self, reason: LostReason) {
        let mut holding = self.holding();
        if holding.lost.is_some() {
            return;
        }
        holding.lost = Some(reason);
        drop(holding);
        self.leave_slot();
        if let Some(token) = &*lock(&self.told) {
            token.cancel();
        }
    }

    /// Cancelled when the holds are lost.
    pub(crate) fn token(&self) -> CancellationToken {
        let token = lock(&self.told).get_or_insert_default().clone();
        if self.holding().lost.is_some() {
            token.cancel();
        }
        token
    }

    /// The next operation of this owner on this lock begins a new tenure.
    fn leave_slot(&self) {
        let mut tenures = lock(&self.slot.tenures);
        let old = tenures[self.place.count as usize].take_if(|tenure| tenure.number == self.number);
        drop(tenures);
        // Dropped here, outside of the lock: it may be the last use of the slot.
        drop(old);
    }
}

#[cfg(test)]
#[path = "holds_tests.rs"]
mod tests;
