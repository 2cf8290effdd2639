//! The queue of one lane: operations under way, and operations that wait for a batch. Pure.

use std::collections::VecDeque;

use tokio::sync::oneshot;

/// Up to this length, the queue keeps operations whose callers have gone.
const FEW: usize = 64;
/// The most operations of one batch.
const MOST_TOGETHER: usize = 32;
/// The most carriers of a lane, each with one batch under way. More batches would only queue at the server.
const MOST_CARRIERS: usize = 8;

/// The operations of one lane.
#[derive(Debug)]
pub(super) struct Queue<T, R> {
    waiting: VecDeque<(T, oneshot::Sender<R>)>,
    /// At this length, removes operations whose callers have gone.
    look_at: usize,
    /// Lone operations under way.
    alone: usize,
    carriers: usize,
    /// Carriers without a batch under way, which will take the next batches.
    here: usize,
    is_closed: bool,
}

/// How an operation travels.
#[derive(Debug)]
pub(super) enum Admission<T, R> {
    /// At once and alone.
    Alone(T),
    /// In a batch. `carrier`: the caller must start a carrier.
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
    /// Admits an operation: alone if fewer than `most_alone` lone operations are under way, else to the queue.
    pub(super) fn admit(&mut self, operation: T, most_alone: usize) -> Admission<T, R> {
        if self.alone < most_alone {
            self.alone += 1;
            return Admission::Alone(operation);
        }
        let (answer, reply) = oneshot::channel();
        if self.is_closed {
            // The sender drops here, so the caller learns that no carrier answers.
            return Admission::Queued {
                reply,
                carrier: false,
            };
        }
        if self.waiting.len() >= self.look_at {
            self.remove_abandoned();
        }
        self.waiting.push_back((operation, answer));
        let carrier = self.carriers < MOST_CARRIERS && self.lacks_carriers();
        if carrier {
            self.carriers += 1;
            self.here += 1;
        }
        Admission::Queued { reply, carrier }
    }

    /// Removes operations whose callers have gone: without a connection, no flush removes them. The limit becomes twice the
    /// number of the remaining operations, so the cost per operation is constant.
    fn remove_abandoned(&mut self) {
        self.waiting.retain(|(_, answer)| !answer.is_closed());
        self.look_at = FEW.max(2 * self.waiting.len());
        self.waiting.shrink_to(self.look_at);
    }

    /// Ends the lane with its carriers. Waiting callers learn of it.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.waiting.clear();
    }

    /// A lone operation has its reply, or its future was dropped.
    pub(super) fn alone_is_over(&mut self) {
        self.alone -= 1;
    }

    /// Whether more operations wait than the free carriers can take.
    fn lacks_carriers(&self) -> bool {
        self.waiting.len() > self.here * MOST_TOGETHER
    }

    /// The next batch of a carrier; `None` ends the carrier.
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

    /// A carrier's batch is answered. Returns whether the carrier goes on.
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
