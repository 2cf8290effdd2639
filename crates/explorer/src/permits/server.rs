//! The server's side: what the scripts do, and what a replica may lack.

use crate::core::permits::{
    attempts::AttemptKey,
    facts::{Answer, Request},
};

/// The most result keys of a client.
pub const SLOTS: usize = 6;

/// The result of an attempt that the server has executed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stored {
    pub number: u64,
    pub left: u8,
    /// The ticks until the server forgets it: the checks still know it.
    pub lives: u8,
}

/// The semaphore's data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Data {
    pub left: u8,
    pub results: [[Option<Stored>; SLOTS]; 2],
}

impl Data {
    pub fn has_executed(&self, client: u8, key: AttemptKey) -> bool {
        self.result(client, key)
            .is_some_and(|stored| stored.number == key.number)
    }

    fn result(&self, client: u8, key: AttemptKey) -> Option<Stored> {
        self.results[client as usize][key.slot as usize]
    }

    /// Runs a request, and tells what it publishes.
    pub fn run(
        &mut self,
        client: u8,
        key: AttemptKey,
        request: Request,
        lasts: u8,
    ) -> (Answer, Option<u8>) {
        if let Some(stored) = self.result(client, key).filter(|stored| stored.lives > 0) {
            if stored.number == key.number {
                let left = stored.left.into();
                return (Answer::Done { left }, None);
            }
            if stored.number > key.number {
                return (Answer::Refused, None);
            }
        }
        let published = match request {
            Request::Acquire { permits } if i64::from(self.left) < i64::from(permits) => {
                let left = self.left.into();
                return (Answer::Busy { left }, None);
            }
            Request::Acquire { permits } => {
                self.left -= permits as u8;
                None
            }
            Request::Release { permits } => {
                self.left += permits as u8;
                Some(self.left)
            }
        };
        self.results[client as usize][key.slot as usize] = Some(Stored {
            number: key.number,
            left: self.left,
            lives: lasts,
        });
        let left = self.left.into();
        (Answer::Done { left }, published)
    }

    pub fn tick(&mut self) {
        for stored in self.results.iter_mut().flatten().flatten() {
            stored.lives = stored.lives.saturating_sub(1);
        }
    }
}
