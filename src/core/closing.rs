//! The end of a client: its callers are told, what is due is released, and then the holds that are left end.
//!
//! | | begins with | then |
//! | --- | --- | --- |
//! | Closing | [`close`](Machine::close) | callers that wait for the lock, and new ones, are told. What no task has is released. Holds are renewed |
//! | Settled | [`is_settled`](Machine::is_settled) | nothing is under way, and nothing is due but renewals |
//! | Over | [`finish`](Machine::finish) | the holds are lost, and are released or left to their leases |
//!
//! What is believed then is the report: the lock may stay held for as long.

use super::{
    Machine,
    facts::{Effects, Facts},
    waiters::{Outcome, State, Waiter},
};

impl<W> Machine<W> {
    /// The client closes: [`Facts::is_open`] is false from now on.
    pub fn close(&mut self, facts: &Facts<'_>, out: &mut Effects<W>) {
        self.expire(facts);
        self.settle(facts, out);
    }

    /// Whether the client has nothing to wait for: no answer, no release, no place to leave.
    pub fn is_settled(&self) -> bool {
        self.fields.iter().all(|field| {
            let is_believed = field.most() > self.want(field) && !field.is_given_up;
            field.does().is_none() && !is_believed && !field.is_placed()
        })
    }

    /// The client is closed: no hold is valid any more. `releases`: the server is told.
    pub fn finish(&mut self, facts: &Facts<'_>, releases: bool, out: &mut Effects<W>) {
        self.expire(facts);
        let left = self.tenure.filter(|_| !releases);
        self.lose(false);
        if let Some(index) = left.and_then(|tenure| self.find(tenure.field)) {
            self.fields[index].is_given_up = true;
        }
        self.settle(facts, out);
    }

    /// Tells the callers of a client that closes.
    pub(super) fn turn_away(&mut self, facts: &Facts<'_>, out: &mut Effects<W>) {
        let waits = |waiter: &Waiter<W>| {
            matches!(
                waiter.state,
                State::Queued | State::Asking | State::Parked { .. } | State::Stalled
            )
        };
        while let Some(key) = self.waiters.find(waits) {
            self.forget_caller(key);
            out.wake
                .extend(self.waiters.finish(key, State::Over(Outcome::Closed)));
        }
        while let Some((hold, key)) = self.holds.find_given(|_| true) {
            self.waiters.set(key, State::Over(Outcome::Closed));
            self.end_hold(hold, facts, out);
        }
    }
}
