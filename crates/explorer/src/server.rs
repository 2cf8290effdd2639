//! The server's side: what the scripts do, and what a replica may lack.

use crate::core::{
    facts::{Answer, Request},
    keys::Owner,
};

/// A client, and the field under which it has the lock.
pub type Holder = (u8, Owner);

/// The lock's data, with its expiry in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Data {
    pub holder: Option<Holder>,
    pub holds: u32,
    pub left: u8,
}

impl Data {
    pub fn holds_of(&self, holder: Holder) -> u32 {
        match self.holder == Some(holder) {
            true => self.holds,
            false => 0,
        }
    }

    /// Runs a request. Returns whether a message follows.
    pub fn run(
        &mut self,
        from: Holder,
        request: Request,
        ticks: impl Fn(std::time::Duration) -> u8,
    ) -> (Answer, bool) {
        let held = self.holds_of(from);
        match request {
            Request::Acquire { holds, lease } => {
                let lease = ticks(lease);
                if self.holder.is_none() && holds == 1 {
                    *self = Self {
                        holder: Some(from),
                        holds,
                        left: lease,
                    };
                    (Answer::Done, false)
                } else if held > 0 && held + 1 >= holds {
                    self.holds = holds;
                    self.left = self.left.max(lease);
                    (Answer::Done, false)
                } else if holds > 1 {
                    (Answer::Absent, false)
                } else {
                    let remaining = Some(crate::system::TICK * u32::from(self.left));
                    (Answer::Busy { remaining }, false)
                }
            }
            Request::Release { holds: 0, .. } if held > 0 => {
                *self = Self::default();
                (Answer::Done, true)
            }
            Request::Release { holds, lease } if held >= holds && held > 0 => {
                let lease = ticks(lease);
                let is_cut = u32::from(lease) * 3 < u32::from(self.left) * 2;
                self.holds = holds;
                self.left = lease;
                (Answer::Done, is_cut)
            }
            Request::Renew { lease } if held > 0 => {
                self.left = self.left.max(ticks(lease));
                (Answer::Done, false)
            }
            _ => (Answer::Absent, false),
        }
    }

    /// One tick passes. Returns whether the lock expired.
    pub fn tick(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        let is_over = self.left == 0 && self.holder.is_some();
        if self.left == 0 {
            *self = Self::default();
        }
        is_over
    }
}
