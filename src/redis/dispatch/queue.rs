//! The queue of one lane: operations under way, and operations that wait for a batch. Pure.

use std::collections::VecDeque;

use super::complete::Complete;

/// Up to this length, the queue keeps operations that are not wanted any more.
const FEW: usize = 64;
/// The most operations of one batch.
const MOST_TOGETHER: usize = 32;
/// The same while operations of groups wait, which have waited for each other anyway.
const MOST_OF_GROUPS: usize = 128;
/// The most carriers of a lane, each with one batch under way. More batches would only queue at the server.
const MOST_CARRIERS: usize = 8;

/// The operations of one lane.
#[derive(Debug)]
pub(super) struct Queue<C> {
    waiting: VecDeque<C>,
    /// How many of them stand up to the last operation of a group.
    of_groups: usize,
    /// At this length, removes operations that are not wanted any more.
    look_at: usize,
    /// Lone operations under way.
    lone: usize,
    carriers: usize,
    /// Carriers without a batch under way, which will take the next batches.
    here: usize,
    is_closed: bool,
}

/// What follows from new operations.
#[derive(Debug)]
pub(super) struct Pushed<C> {
    /// How many carriers to start.
    pub(super) carriers: usize,
    /// Completions to drop.
    pub(super) unwanted: Vec<C>,
}

impl<C> Default for Pushed<C> {
    fn default() -> Self {
        Self {
            carriers: 0,
            unwanted: Vec::new(),
        }
    }
}

impl<C> Default for Queue<C> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            of_groups: 0,
            look_at: FEW,
            lone: 0,
            carriers: 0,
            here: 0,
            is_closed: false,
        }
    }
}

impl<C: Complete> Queue<C> {
    /// Begins a lone operation, unless `most` are under way.
    pub(super) fn begin_lone(&mut self, most: usize) -> bool {
        let begins = self.lone < most;
        self.lone += usize::from(begins);
        begins
    }

    /// A lone operation has its reply, or its future was dropped.
    pub(super) fn end_lone(&mut self) {
        self.lone -= 1;
    }

    /// Adds an operation.
    pub(super) fn push(&mut self, operation: C) -> Pushed<C> {
        let mut unwanted = self.remove_unwanted();
        match self.is_closed {
            true => unwanted.push(operation),
            false => self.waiting.push_back(operation),
        }
        self.pushed(unwanted)
    }

    /// Adds the operations of a group.
    pub(super) fn push_group(&mut self, operations: Vec<C>) -> Pushed<C> {
        let mut unwanted = self.remove_unwanted();
        match self.is_closed {
            true => unwanted.extend(operations),
            false => {
                self.waiting.extend(operations);
                self.of_groups = self.waiting.len();
            }
        }
        self.pushed(unwanted)
    }

    /// Removes operations that are not wanted any more, once many wait: without a connection, no batch removes them. The limit becomes
    /// twice the number of the remaining operations, so the cost per operation is constant.
    fn remove_unwanted(&mut self) -> Vec<C> {
        if self.waiting.len() < self.look_at {
            return Vec::new();
        }
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (wanted, unwanted): (Vec<_>, _) = waiting.partition(C::is_wanted);
        self.waiting = wanted.into();
        self.of_groups = self.of_groups.min(self.waiting.len());
        self.look_at = FEW.max(2 * self.waiting.len());
        unwanted
    }

    fn pushed(&mut self, unwanted: Vec<C>) -> Pushed<C> {
        Pushed {
            carriers: self.begin_carriers(),
            unwanted,
        }
    }

    /// Begins carriers until they can take all operations, or there are enough. Returns their number.
    fn begin_carriers(&mut self) -> usize {
        let before = self.carriers;
        while self.carriers < MOST_CARRIERS && self.lacks_carriers() {
            self.carriers += 1;
            self.here += 1;
        }
        self.carriers - before
    }

    /// Whether more operations wait than the free carriers can take.
    fn lacks_carriers(&self) -> bool {
        self.waiting.len() > self.here * self.most_together()
    }

    /// The most operations of the next batch.
    fn most_together(&self) -> usize {
        match self.of_groups {
            0 => MOST_TOGETHER,
            _ => MOST_OF_GROUPS,
        }
    }

    /// The next batch of a carrier, and how many carriers to start beside it; `None` ends the carrier.
    pub(super) fn take(&mut self) -> Option<(Vec<C>, usize)> {
        self.here -= 1;
        if self.waiting.is_empty() {
            self.carriers -= 1;
            return None;
        }
        let count = self.most_together().min(self.waiting.len());
        let batch = self.waiting.drain(..count).collect();
        self.of_groups = self.of_groups.saturating_sub(count);
        Some((batch, self.begin_carriers()))
    }

    /// A carrier's batch is answered. Returns whether the carrier goes on.
    pub(super) fn come_back(&mut self) -> bool {
        let needed = self.here == 0 || self.lacks_carriers();
        match needed {
            true => self.here += 1,
            false => self.carriers -= 1,
        }
        needed
    }

    /// Ends the lane with its carriers. Returns the completions to drop.
    pub(super) fn close(&mut self) -> VecDeque<C> {
        self.is_closed = true;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
