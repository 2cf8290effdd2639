//! The operations of one batch key: those on their way, and those that wait. Pure.

use std::collections::VecDeque;

use tokio::sync::oneshot;

/// Operations that may wait without a look at whether they still do.
const FEW: usize = 64;
/// Operations in one call.
const MOST_TOGETHER: usize = 32;
/// Calls of a queue that its carriers have on their way. When they are all out, the server has enough to do, and what comes
/// gathers.
const MOST_CARRIERS: usize = 8;

/// The operations of one batch key on their way, and those that wait.
#[derive(Debug)]
pub(super) struct Queue<T, R> {
    waiting: VecDeque<(T, oneshot::Sender<R>)>,
    /// How many may wait until those are looked for that have given up.
    look_at: usize,
    /// So many are on their way alone.
    alone: usize,
    carriers: usize,
    /// So many of the carriers are here, and will take of what waits.
    here: usize,
    is_closed: bool,
}

/// How an operation travels.
#[derive(Debug)]
pub(super) enum Admission<T, R> {
    /// At once, by itself.
    Alone(T),
    /// In a batch; `carrier`: start a carrier.
    Queued {
        reply: oneshot::Receiver<R>,
        carrier: bool,
    },
}

impl<T, R> Default for Queue<T, R> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            look_at: FEW,
            alone: 0,
            carriers: 0,
            here: 0,
            is_closed: false,
        }
    }
}

impl<T, R> Queue<T, R> {
    /// `most_alone`: how many may be on their way alone with this one.
    pub(super) fn admit(&mut self, operation: T, most_alone: usize) -> Admission<T, R> {
        if self.alone < most_alone {
            self.alone += 1;
            return Admission::Alone(operation);
        }
        let (answer, reply) = oneshot::channel();
        if self.is_closed {
            // There is no carrier to answer, which the caller learns by this.
            return Admission::Queued {
                reply,
                carrier: false,
            };
        }
        if self.waiting.len() >= self.look_at {
            self.forget_given_up();
        }
        self.waiting.push_back((operation, answer));
        let carrier = self.carriers < MOST_CARRIERS && self.lacks_carriers();
        if carrier {
            self.carriers += 1;
            self.here += 1;
        }
        Admission::Queued { reply, carrier }
    }

    /// While there is no connection, nothing else takes them out. Those that stay are at least as many as come before the
    /// next look, so that a look costs each a constant.
    fn forget_given_up(&mut self) {
        self.waiting.retain(|(_, answer)| !answer.is_closed());
        self.look_at = FEW.max(2 * self.waiting.len());
        self.waiting.shrink_to(self.look_at);
    }

    /// There are no carriers any more, and will be none. Waiting operations are told.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.waiting.clear();
    }

    /// One that was alone is on its way no more.
    pub(super) fn alone_is_over(&mut self) {
        self.alone -= 1;
    }

    /// Whether something waits that the carriers here cannot take.
    fn lacks_carriers(&self) -> bool {
        self.waiting.len() > self.here * MOST_TOGETHER
    }

    /// The next call of a carrier, or `None`: the carrier ends.
    pub(super) fn flush(&mut self) -> Option<Vec<(T, oneshot::Sender<R>)>> {
        self.here -= 1;
        let mut batch = Vec::with_capacity(self.waiting.len().min(MOST_TOGETHER));
        while batch.len() < MOST_TOGETHER
            && let Some((operation, answer)) = self.waiting.pop_front()
        {
            if !answer.is_closed() {
                batch.push((operation, answer));
            }
        }
        if batch.is_empty() {
            self.carriers -= 1;
            return None;
        }
        Some(batch)
    }

    /// The call of a carrier is over. Whether it is to take another one.
    pub(super) fn come_back(&mut self) -> bool {
        let needed = self.here == 0 || self.lacks_carriers();
        if needed {
            self.here += 1;
        } else {
            self.carriers -= 1;
        }
        needed
    }
}

#[cfg(test)]
#[path = "batch_queue_tests.rs"]
mod tests;
