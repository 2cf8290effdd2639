//! Who gets a lock that this process releases: the next of its own tasks, or others. Pure.
//!
//! Mostly a lock is handed from one of them to the next without being free in between ([`offer`](super::offer)), and
//! nothing is published. Now and then it is released, to see who else listens.
//!
//! A release tells one waiter of this process to try as soon as it has been sent: the try follows it on the same
//! connection, and nobody waits for the message to come back. The message is published all the same, for others and
//! for a connection that ends between the two. Its echo to ourselves is *absorbed*, or each release would wake a second
//! waiter for nothing.
//!
//! No wake-up is lost by that. A message may be ignored by whoever tries after it was published and is granted the lock:
//! what frees it then is another release, with a wake-up of its own. Messages arrive in the order in which they were
//! published, and an echo is waited for from before its release is sent, so the one that is absorbed for a release is its
//! echo or older. Then:
//!
//! - While the *heir*, who was told, has not been answered, the message counts as his: refused, he tries again. Any other
//!   message that comes meanwhile is not his: granted, he passes it on.
//! - Once he has been granted the lock, he has asked later than the release: the message is out of date.
//! - If he is refused, or leaves, nothing is absorbed any more. His leaving wakes the next.
//! - If the release turns out not to have published, what was absorbed for it is made up for.
//! - Where messages may have been missed, everybody is woken, and nothing is absorbed any more.
//! - An echo that gets lost without anybody's notice, between nodes of a cluster, is waited for until [`ECHO_WAIT`] after
//!   the answer; what else may be absorbed until then is left to the poll floor.
//!
//! Waiters of other clients come too late as long as that goes on. When a yield is due ([`yielding`](super::yielding)), the
//! lock is left free and the waiters here *rest* until another client's message, or until the yield is over. It begins with
//! the answer to the release, which leaves the server together with the message that other clients hear.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::queue::WaiterId;

/// Hand-overs without a message while nobody else is known to listen: so late is it seen that somebody has begun to.
const MOST_UNHEARD: u32 = 4;
/// Hand-overs in a row while nobody else is known to listen. Who listens at a replica, or asks without listening, is not
/// counted, and is not to be shut out for good.
const MOST_UNSEEN: u32 = 256;
/// How long the lock is left free after [`MOST_UNSEEN`] hand-overs.
const REST: Duration = Duration::from_millis(2);
/// How long after the answer to its release an echo is waited for.
const ECHO_WAIT: Duration = Duration::from_millis(100);
/// The longest that a rest lasts before the release is answered.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// For how long a newcomer counts on the heir to take the lock.
const HEIR_WAIT: Duration = Duration::from_millis(100);
/// For how long a newcomer counts on it that somebody here asks, or has been refused.
const ASKED_WAIT: Duration = Duration::from_millis(100);

/// A release whose echo is to be absorbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// See [`Turns::echoes`].
#[derive(Debug)]
struct Echo {
    ticket: Ticket,
    until: Option<Instant>,
    /// Nobody here was told of the release: nobody waited.
    unheeded: bool,
}

/// What is to become of a lock that is being released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// One of those who wait here is to have it.
    Ours,
    /// It is left to others until then.
    Others { until: Instant },
}

/// The turns at one lock, for as long as anybody here waits for it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Releases whose echo has not arrived, and until when it is waited for, once they are answered.
    echoes: VecDeque<Echo>,
    tickets: u64,
    /// Who was told by a release to try, and has not been answered.
    heir: Option<WaiterId>,
    /// Until when those who come need not ask: one of us has the lock, or is to have it next.
    ours_until: Option<Instant>,
    /// Until when the same holds because one of us asks for it, or has been refused.
    asked_until: Option<Instant>,
    /// Until when those who wait leave the lock to others.
    rest_until: Option<Instant>,
    /// Whose answer is to say until when.
    rest_after: Option<Ticket>,
    /// How long it lasts from there, if no yield says so.
    rest: Option<Duration>,
    /// Hand-overs in a row.
    in_a_row: u32,
    /// How many waited here when the row began.
    crowd: usize,
    /// Whether others listened when a release was last published.
    others: bool,
    /// Hand-overs since a release was last published, if one was.
    unheard: Option<u32>,
    /// The server refuses to hand over this lock.
    refused: bool,
}

impl Turns {
    /// The last hold is to be released, and of the `waiting` some are at rest. Says whether one of them is to be handed the
    /// lock instead, of which nobody else hears. A yield may be `due`, if other clients listen.
    pub(super) fn hands_over(&mut self, waiting: usize, due: bool, now: Instant) -> bool {
        let Some(unheard) = self.unheard else {
            return false;
        };
        self.begins_with(waiting);
        let most_unheard = u32::try_from(self.crowd)
            .unwrap_or(u32::MAX)
            .min(MOST_UNHEARD);
        let heard = self.others || unheard < most_unheard;
        if self.refused || self.rests(now).is_some() || !heard || self.is_over(due) {
            return false;
        }
        self.unheard = Some(unheard + 1);
        self.one_more(now);
        true
    }

    /// Whether other clients heard of a release.
    pub(super) fn others_listen(&mut self, others: bool) -> Answered {
        self.others = others;
        Answered::Nothing
    }

    /// Whether this client's row ends with the present release.
    pub(super) fn is_over(&self, due: bool) -> bool {
        self.others && due || self.in_a_row >= MOST_UNSEEN
    }

    /// What was to be handed over is released.
    pub(super) fn not_taken(&mut self) {
        // Who was told tries as everybody else does: that another one of ours is quicker ends no row.
        self.heir = None;
        self.echoes.clear();
        self.not_ours();
    }

    pub(super) fn cannot_offer(&mut self) {
        self.refused = true;
    }

    /// There may be another server.
    pub(super) fn missed(&mut self) {
        self.forget();
        self.refused = false;
    }

    fn one_more(&mut self, now: Instant) {
        self.in_a_row += 1;
        self.ours_until = Some(now + HEIR_WAIT);
    }

    fn begins_with(&mut self, waiting: usize) {
        if self.in_a_row == 0 {
            self.crowd = waiting;
        }
    }

    /// The last hold is being released, and of the `waiting` some are at rest. A yield may be `due`, if other clients listen.
    pub(super) fn released(&mut self, waiting: usize, due: bool, now: Instant) -> (Ticket, Turn) {
        self.begins_with(waiting);
        let over = self.is_over(due);
        self.unheard = Some(0);
        let ticket = self.expect_echo(false, now);
        if !over {
            self.one_more(now);
            return (ticket, Turn::Ours);
        }
        let until = now + ANSWER_WAIT;
        let unseen = self.in_a_row >= MOST_UNSEEN;
        self.in_a_row = 0;
        (self.heir, self.ours_until) = (None, None);
        (self.rest_until, self.rest_after) = (Some(until), Some(ticket));
        self.rest = unseen.then_some(REST);
        (ticket, Turn::Others { until })
    }

    /// The last hold is being released while nobody here waits, and messages arrive.
    pub(super) fn released_unheeded(&mut self, now: Instant) -> Ticket {
        self.expect_echo(true, now)
    }

    fn expect_echo(&mut self, unheeded: bool, now: Instant) -> Ticket {
        self.forget_overdue(now);
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.echoes.push_back(Echo {
            ticket,
            until: None,
            unheeded,
        });
        ticket
    }

    /// Whether the waiters here rest after the release of `ticket`.
    pub(super) fn rests_after(&self, ticket: Ticket) -> bool {
        self.rest_after == Some(ticket) && self.rest_until.is_some()
    }

    /// The waiters here leave the lock to other clients until then.
    pub(super) fn rest(&mut self, until: Instant) {
        (self.rest_until, self.rest_after) = (Some(until), None);
        (self.ours_until, self.asked_until) = (None, None);
    }

    /// Until when the waiters here leave the lock to other clients.
    pub(super) fn rests(&self, now: Instant) -> Option<Instant> {
        self.rest_until.filter(|until| *until > now)
    }

    /// Who was told to take the lock that is being released.
    pub(super) fn heir_is(&mut self, id: WaiterId) {
        self.heir = Some(id);
    }

    pub(super) fn heir(&self) -> Option<WaiterId> {
        self.heir
    }

    /// The release was answered.
    pub(super) fn answered(
        &mut self,
        ticket: Ticket,
        published: Option<Published>,
        now: Instant,
    ) -> Answered {
        let rests = self.rest_after.take_if(|after| *after == ticket).is_some()
            && self.rest_until.is_some();
        let echo = self.echoes.iter_mut().find(|echo| echo.ticket == ticket);
        let Some(Published { others, left_until }) = published else {
            match echo {
                Some(_) => self.echoes.retain(|echo| echo.ticket != ticket),
                // Another one's was taken for it, so there will be one less.
                None => drop(self.echoes.pop_front()),
            }
            return Answered::MakeUp;
        };
        if let Some(echo) = echo {
            echo.until = Some(now + ECHO_WAIT);
        }
        self.others = others;
        if rests {
            let unseen = self.rest.take().map(|rest| now + rest);
            // With neither, nobody else is left to wait for.
            let until = left_until.max(unseen).unwrap_or(now);
            self.rest_until = Some(until);
            return Answered::Rest { until };
        }
        Answered::Nothing
    }

    /// Whether a message has to be an echo, or older than one; and if so, whether somebody who has come since the release was
    /// sent may have to be told of it.
    pub(super) fn absorbs(&mut self, now: Instant) -> Option<bool> {
        self.forget_overdue(now);
        let echo = self.echoes.pop_front()?;
        // At the end of a rest one of them asks anyway.
        Some(echo.unheeded && self.rests(now).is_none())
    }

    fn forget_overdue(&mut self, now: Instant) {
        self.echoes
            .retain(|echo| echo.until.is_none_or(|until| until > now));
    }

    /// One of us has the lock, until then or longer.
    pub(super) fn taken(&mut self, until: Instant) {
        self.ours_until = Some(until);
    }

    /// One of us asks for it, or has been refused.
    pub(super) fn asked(&mut self, now: Instant) {
        self.asked_until = Some(now + ASKED_WAIT);
    }

    /// Somebody else may have it, or nobody.
    pub(super) fn not_ours(&mut self) {
        (self.ours_until, self.asked_until) = (None, None);
        (self.rest_until, self.rest_after) = (None, None);
    }

    /// It is time for somebody to ask who was not told to.
    /// Says whether a rest is over.
    pub(super) fn polled(&mut self, now: Instant) -> bool {
        let rested = self.rest_until.is_some_and(|until| until <= now);
        if rested {
            self.not_ours();
        }
        rested
    }

    /// The waiter leaves, granted the lock or not.
    pub(super) fn leaves(&mut self, id: WaiterId, granted: bool) {
        if self.heir == Some(id) {
            self.heir = None;
            if !granted {
                self.echoes.clear();
                self.ours_until = None;
            }
        }
    }

    /// The waiter was refused, and is at rest from now on.
    pub(super) fn refused(&mut self, id: WaiterId) {
        if self.heir == Some(id) {
            self.forget();
        }
    }

    /// Nothing is absorbed any more, and everybody asks for himself.
    pub(super) fn forget(&mut self) {
        self.echoes.clear();
        (self.heir, self.in_a_row, self.unheard) = (None, 0, None);
        self.not_ours();
    }

    /// Until when who comes now is to wait without having asked.
    pub(super) fn newcomers_wait(&self, now: Instant) -> Option<Instant> {
        self.ours_until
            .max(self.rest_until)
            .max(self.asked_until)
            .filter(|until| *until > now)
    }
}

/// What the answer to a release changes for those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    Nothing,
    /// They rest until then.
    Rest {
        until: Instant,
    },
    /// A message that was absorbed, or will not come, has to be made up for.
    MakeUp,
}

/// What the answer to a release says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Published {
    /// Whether other clients listen, or may.
    pub(super) others: bool,
    /// Until when the lock is left to them.
    pub(super) left_until: Option<Instant>,
}

#[cfg(test)]
#[path = "turns_model.rs"]
mod model;
#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
