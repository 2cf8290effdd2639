//! The server's side: what the scripts do, and what a replica may lack.

use crate::{
    core::{
        facts::{Answer, Request},
        keys::Owner,
    },
    fair::Queue,
    system::System,
    world::in_ticks,
};

/// A client, and the field under which it has the lock.
pub type Holder = (u8, Owner);

/// What hears a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    None,
    /// All that listen to the lock's channel.
    All,
    /// An owner on its own channel.
    One(Holder),
}

/// The lock's data, with its expiry in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Data {
    pub holder: Option<Holder>,
    pub holds: u32,
    pub left: u8,
    pub queue: Queue,
}

impl Data {
    pub fn holds_of(&self, holder: Holder) -> u32 {
        match self.holder == Some(holder) {
            true => self.holds,
            false => 0,
        }
    }

    /// Runs a request, and tells what hears a message about it.
    pub fn run(&mut self, from: Holder, request: Request, system: &System) -> (Answer, Heard) {
        let held = self.holds_of(from);
        match request {
            Request::Acquire { holds, lease, .. } if held > 0 && held + 1 >= holds => {
                self.holds = holds;
                self.left = self.left.max(in_ticks(lease));
                (Answer::Done, Heard::None)
            }
            Request::Acquire { holds, .. } if holds > 1 => (Answer::Absent, Heard::None),
            Request::Acquire { lease, wait, .. } if system.limits.is_fair => {
                self.acquire_in_turn(from, in_ticks(lease), wait, system.place)
            }
            Request::Acquire { lease, .. } if self.holder.is_none() => {
                (self.holder, self.holds, self.left) = (Some(from), 1, in_ticks(lease));
                (Answer::Done, Heard::None)
            }
            Request::Acquire { .. } => {
                let remaining = Some(crate::system::TICK * u32::from(self.left));
                (Answer::Busy { remaining }, Heard::None)
            }
            Request::Release { holds: 0, .. } if held > 0 => {
                self.free();
                let heard = match system.limits.is_fair {
                    true => self.next_in_queue(),
                    false => Heard::All,
                };
                (Answer::Done, heard)
            }
            Request::Release { holds, lease } if held >= holds && held > 0 => {
                let lease = in_ticks(lease);
                let is_cut = u32::from(lease) * 3 < u32::from(self.left) * 2;
                self.holds = holds;
                self.left = lease;
                let heard = if is_cut {
                    self.heard(system)
                } else {
                    Heard::None
                };
                (Answer::Done, heard)
            }
            Request::Renew { lease } if held > 0 => {
                self.left = self.left.max(in_ticks(lease));
                (Answer::Done, Heard::None)
            }
            Request::Abandon => self.abandon(from),
            _ => (Answer::Absent, Heard::None),
        }
    }

    /// What hears that the lock is free, or will be earlier.
    pub fn heard(&self, system: &System) -> Heard {
        match system.limits.is_fair {
            true => self.queue.notified(),
            false => Heard::All,
        }
    }

    pub fn free(&mut self) {
        (self.holder, self.holds, self.left) = (None, 0, 0);
    }

    /// One tick passes. Returns whether the lock expired.
    pub fn tick(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.queue.tick();
        let is_over = self.left == 0 && self.holder.is_some();
        if self.left == 0 {
            self.free();
        }
        is_over
    }
}
