//! What the client believes of one owner's field of the lock: how many holds the server counts there at most, and until when.
//!
//! One operation at a time is under way for a field: a repetition is then harmless, and an answer tells what it is about.
//!
//! Every answer to abandon ends the [`place`](super::place), but for a passing refusal and none.
//!
//! | answer | to acquire `n` | to release `n` | to renew |
//! | --- | --- | --- | --- |
//! | Done | `n` holds; the hold goes to its waiter, to the first one, or to none | `n` holds | the lease; an extension is over |
//! | Busy | no hold; the waiter parks, unless the answer is outdated | - | - |
//! | Absent | at most `n - 2`; the tenure is lost | at most `n - 1`; in doubt and in time: as Done | none; the tenure is lost |
//! | Refused | as asked, at most; the caller fails | as before; given up | as before; an extension fails |
//! | Passing | as before the request; the caller waits its turn | as before | as before |
//! | Unanswered | as asked, at most: in doubt | as before: in doubt | as before |
//!
//! An operation that a passing refusal puts off rests, and is then due again.

use std::time::Duration;

use super::{
    facts::{Limits, Terms},
    keys::{HoldKey, Kind, OpKey, Owner, WaiterKey},
    place::Place,
    time::Time,
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum What {
    /// For a waiter, while it is there.
    Acquire {
        for_waiter: Option<WaiterKey>,
        terms: Terms,
        holds: u32,
        /// Whether the caller waits, and has a place in the queue of a fair lock.
        waits: bool,
    },
    /// `in_time`: the validity had not ended.
    Release {
        holds: u32,
        in_time: bool,
    },
    Abandon,
    Renew {
        extends: Option<Extension>,
    },
}

/// A renewal that keeps a hold for as long as a caller asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extension {
    /// The caller, while it is there.
    pub for_waiter: Option<WaiterKey>,
    pub hold: HoldKey,
    pub lease: Duration,
}

impl What {
    pub fn kind(self) -> Kind {
        match self {
            What::Acquire { .. } => Kind::Acquire,
            What::Release { .. } => Kind::Release,
            What::Abandon => Kind::Abandon,
            What::Renew { .. } => Kind::Renew,
        }
    }

    /// The caller that waits for the answer, if there is one.
    pub fn waiter_mut(&mut self) -> Option<&mut Option<WaiterKey>> {
        match self {
            What::Acquire { for_waiter, .. } => Some(for_waiter),
            What::Renew { extends } => extends.as_mut().map(|extends| &mut extends.for_waiter),
            What::Release { .. } | What::Abandon => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// It waits for its batch, and gives way to a more urgent one.
    Queued(OpKey),
    Sent(Sent),
}

impl Op {
    pub fn kind(self) -> Kind {
        match self {
            Op::Queued(key) => key.kind,
            Op::Sent(sent) => sent.kind(),
        }
    }

    /// Whether it is a renewal that extends no hold.
    pub fn leaves_leases(self) -> bool {
        match self {
            Op::Queued(key) => key.kind == Kind::Renew,
            Op::Sent(sent) => sent.what == What::Renew { extends: None },
        }
    }
}

/// A request under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sent {
    pub what: What,
    pub at: Time,
    pub lease: Duration,
    pub epoch: u32,
    /// The most holds that the server counted before it.
    pub most_before: u32,
    /// Every later request of the connection follows it.
    pub is_written: bool,
    /// The lock may have been freed since: a refusal asks again.
    pub is_outdated: bool,
    /// Another client has freed the lock since: a grant is verified.
    pub is_doubtful: bool,
    /// Another tenure was confirmed since.
    pub is_outrun: bool,
}

impl Sent {
    pub fn kind(&self) -> Kind {
        self.what.kind()
    }

    /// Whether the server may keep a hold for longer because of it. An inner release sets the expiry anew.
    fn may_prolong(&self) -> bool {
        !matches!(self.what, What::Release { holds: 0, .. } | What::Abandon)
    }
}

/// Whether a release without an answer was sent within the validity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Doubt {
    InTime,
    Late,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Field {
    pub owner: Owner,
    pub op: Option<Op>,
    /// The server counts at most so many holds.
    most: u32,
    /// The server counts none after this time.
    until: Time,
    /// A release may have been executed.
    pub release_doubt: Option<Doubt>,
    /// An acquire may have been executed, or its hold has no taker. Another one settles it, unless its lease is shorter: the server keeps
    /// the longer one.
    pub is_asked_in_doubt: bool,
    /// The end of the validity of the tenure that ended here.
    pub valid_until: Time,
    /// No release frees the lock before: the hold was lost by this client's clock, which may be fast.
    pub free_after: Time,
    /// The server refused the release. Its next answer, the end of a hold, or the lease ends that.
    pub is_given_up: bool,
    /// An operation that the server has refused for a passing reason, and when it is repeated.
    rests: Option<(Kind, Time)>,
    /// Its place in the queue of a fair lock.
    pub place: Option<Box<Place>>,
}

impl Field {
    pub fn new(owner: Owner) -> Self {
        Self {
            owner,
            op: None,
            most: 0,
            until: Time::default(),
            release_doubt: None,
            is_asked_in_doubt: false,
            valid_until: Time::default(),
            free_after: Time::default(),
            is_given_up: false,
            rests: None,
            place: None,
        }
    }

    /// The most holds that the server counts.
    pub fn most(&self) -> u32 {
        self.most
    }

    pub fn until(&self) -> Time {
        self.until
    }

    pub fn sent(&self) -> Option<&Sent> {
        match &self.op {
            Some(Op::Sent(sent)) => Some(sent),
            _ => None,
        }
    }

    pub fn sent_mut(&mut self) -> Option<&mut Sent> {
        match &mut self.op {
            Some(Op::Sent(sent)) => Some(sent),
            _ => None,
        }
    }

    /// Whether nothing is known of the field, and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.op.is_none() && self.most == 0 && self.place.is_none() && self.rests.is_none()
    }

    /// What is under way, or rests.
    pub fn does(&self) -> Option<Kind> {
        let rests = self.rests.map(|(kind, _)| kind);
        self.op.map(Op::kind).or(rests)
    }

    /// Whether an operation of this kind waits for the time of its repetition.
    pub fn rests(&self, kind: Kind) -> bool {
        self.rests.is_some_and(|(resting, _)| resting == kind)
    }

    /// Whether an operation that rests lets renewals wait.
    pub fn puts_off_renewals(&self) -> bool {
        self.rests(Kind::Renew) || self.rests(Kind::Release)
    }

    /// When the operation that rests is repeated.
    pub fn rests_until(&self) -> Option<Time> {
        self.rests.map(|(_, until)| until)
    }

    /// The server has not executed the request, which is repeated at `until`.
    pub fn puts_off(&mut self, sent: &Sent, until: Time) {
        self.most = sent.most_before;
        self.rests = Some((sent.kind(), until));
    }

    /// The server does not have the owner in its queue.
    pub fn leaves_queue(&mut self) {
        if let Some(place) = &mut self.place {
            place.is_over();
        }
    }

    /// The server may have ended the wait of the last ask.
    pub fn loses_its_wait(&mut self) {
        if let Some(place) = &mut self.place {
            place.is_in_doubt();
        }
    }

    /// Whether the server may have the owner in its queue.
    pub fn is_placed(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.is_taken())
    }

    /// A request that may raise the count is sent.
    pub fn expect(&mut self, holds: u32) {
        self.most = self.most.max(holds);
    }

    /// The server may keep the holds for `lease` from now on. It keeps an earlier lease that is longer.
    pub fn raise(&mut self, lease: Duration, now: Time, limits: &Limits) {
        self.until = self.until.max(limits.certain_end(now, lease));
    }

    /// The server counts `holds`, with an expiry of `lease` at the latest.
    pub fn counts(&mut self, holds: u32) {
        self.most = holds;
        self.settle();
    }

    /// A release was answered: it has set the expiry.
    pub fn released(&mut self, holds: u32, lease: Duration, now: Time, limits: &Limits) {
        self.most = self.most.min(holds);
        self.until = match holds {
            0 => Time::default(),
            _ => limits.certain_end(now, lease),
        };
        self.settle();
        if holds == 0 {
            self.free_after = Time::default();
        }
    }

    /// The server has refused the owner: it counts no hold.
    pub fn is_refused(&mut self) {
        self.most = 0;
        self.until = Time::default();
        self.free_after = Time::default();
        self.settle();
    }

    /// The server counts fewer holds than a request relied on, `rest` at most.
    pub fn lacks(&mut self, rest: u32, now: Time, limits: &Limits) {
        self.most = self.most.min(rest);
        self.until = match self.most {
            0 => Time::default(),
            _ => self
                .until
                .max(limits.certain_end(now, limits.watched_lease)),
        };
        self.free_after = Time::default();
        self.settle();
    }

    /// The server has answered: nothing is in doubt.
    fn settle(&mut self) {
        self.release_doubt = None;
        self.is_asked_in_doubt = false;
        self.is_given_up = false;
    }

    /// When the belief ends. A request under way that may prolong a hold decides it.
    pub fn ends(&self) -> Option<Time> {
        let may_grow = self.sent().is_some_and(Sent::may_prolong);
        (self.most > 0 && !may_grow).then_some(self.until)
    }

    /// Ends the belief when its time has come, and the rest of an operation.
    pub fn expire(&mut self, now: Time) {
        self.rests = self.rests.filter(|(_, until)| !until.has_come(now));
        if self.ends().is_some_and(|end| end.has_come(now)) {
            self.most = 0;
            self.settle();
        }
    }

    #[cfg(any(test, feature = "explorer"))]
    pub fn rebase(&mut self, of_ends: impl Fn(Time) -> Time, of_begins: impl Fn(Time) -> Time) {
        for time in [&mut self.until, &mut self.valid_until, &mut self.free_after] {
            *time = of_ends(*time);
        }
        self.rests = self.rests.map(|(kind, until)| (kind, of_ends(until)));
        if let Some(Op::Sent(sent)) = &mut self.op {
            sent.at = of_begins(sent.at);
        }
        if let Some(place) = &mut self.place {
            place.rebase(of_begins);
        }
    }
}
