//! The place of an owner in the queue that the server keeps for a fair lock.
//!
//! | event | the server has the owner in its queue | the time of its last ask |
//! | --- | --- | --- |
//! | an ask of a waiter is sent | perhaps | as before |
//! | it is refused | yes | its sending, on this connection |
//! | it is not answered | perhaps | forgotten: the place may be another one |
//! | a passing refusal puts it off | perhaps | as before |
//! | it is granted | no | forgotten |
//! | the owner has left the queue, or may not | no | forgotten |
//!
//! A place is left once no task of the owner waits. Only an answer on the present connection tells that it is gone: the server after a
//! failover may have it again.

use std::time::Duration;

use super::{facts::Wait, listener::Listener, time::Time};

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Place {
    /// Whether the server may have the owner in its queue.
    is_taken: bool,
    /// The last ask, and the connection that sent it.
    asked: Option<(Time, u32)>,
    /// When the server was last told to notify the head of its queue.
    notified: Option<Time>,
    /// The owner's own channel.
    pub listener: Listener,
}

impl Place {
    /// An ask of a waiter is sent: what it tells the server about the wait.
    pub fn ask(&mut self, now: Time, epoch: u32, poll: Duration) -> Wait {
        self.is_taken = true;
        let asked = self.asked.filter(|(_, asked)| *asked == epoch);
        Wait {
            // A wait that goes on is told from one that begins.
            since_last: asked.map_or(Duration::ZERO, |(at, _)| {
                now.left(at).max(Duration::from_millis(1))
            }),
            notify_head: self.notifies_head(now, poll),
        }
    }

    /// Whether an ask that is sent then has the head of the queue notified.
    fn notifies_head(&self, sent: Time, poll: Duration) -> bool {
        self.notified.is_none_or(|at| (at + poll).has_come(sent))
    }

    /// The ask that was sent then is refused: the owner has a place.
    pub fn is_refused(&mut self, sent: Time, epoch: u32, poll: Duration) {
        if self.notifies_head(sent, poll) {
            self.notified = Some(sent);
        }
        self.asked = Some((sent, epoch));
    }

    /// The server has not told what became of the last ask.
    pub fn is_in_doubt(&mut self) {
        self.asked = None;
    }

    /// The owner has no place: it has got the lock, or has left the queue.
    pub fn is_over(&mut self) {
        self.is_taken = false;
        (self.asked, self.notified) = (None, None);
    }

    pub fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Whether nothing is known of the place.
    pub fn is_idle(&self) -> bool {
        !self.is_taken && self.listener.is_off()
    }

    /// Forgets an ask that no rule reads: one of an earlier epoch.
    #[cfg(any(test, feature = "explorer"))]
    pub fn forget(&mut self, epoch: u32) {
        self.asked = self.asked.filter(|(_, asked)| *asked == epoch);
    }

    /// Calls the present epoch 0.
    #[cfg(any(test, feature = "explorer"))]
    pub fn renumber(&mut self) {
        self.asked = self.asked.map(|(at, _)| (at, 0));
    }

    #[cfg(any(test, feature = "explorer"))]
    pub fn rebase(&mut self, of_begins: impl Fn(Time) -> Time) {
        self.asked = self.asked.map(|(at, epoch)| (of_begins(at), epoch));
        self.notified = self.notified.map(of_begins);
    }
}
