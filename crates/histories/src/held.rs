//! The holds of an owner, and checks of their guards while the owner waits.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::sleep;

use super::{
    handle::Hold,
    log::{HoldId, Log, Spot, What},
};

/// The pause between two looks at the guards of an owner that waits.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub struct Held {
    pub spot: Spot,
    pub hold: HoldId,
    /// `None`: the guard was leaked.
    pub guard: Option<Box<dyn Hold>>,
}

/// The holds of an owner during another operation. Each loss is recorded once, before the result of the operation.
pub struct Outer<'a> {
    log: &'a Log,
    held: &'a [Held],
    lost: Mutex<Vec<HoldId>>,
}

impl<'a> Outer<'a> {
    pub fn new(log: &'a Log, held: &'a [Held]) -> Self {
        Self {
            log,
            held,
            lost: Mutex::default(),
        }
    }

    /// Records for each guard whether it is valid or lost.
    pub fn look(&self) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        for Held { spot, hold, guard } in self.held {
            let Some(guard) = guard.as_ref().filter(|_| !lost.contains(hold)) else {
                continue;
            };
            if let Some(reason) = self.log.probe(*spot, *hold, &**guard) {
                let hold = *hold;
                self.log.note(*spot, What::Lost { hold, reason });
                lost.push(hold);
            }
        }
    }

    /// Awaits `future`, and checks the guards meanwhile.
    pub async fn watched<T>(&self, future: impl Future<Output = T>) -> T {
        if self.held.is_empty() {
            return future.await;
        }
        let looking = async {
            loop {
                sleep(LOOK_EVERY).await;
                self.look();
            }
        };
        tokio::select! {
            biased;
            done = future => done,
            () = looking => unreachable!("the checks have no end"),
        }
    }

    /// The holds whose loss was recorded.
    pub fn into_lost(self) -> Vec<HoldId> {
        let lost = self.lost.into_inner();
        lost.unwrap_or_else(PoisonError::into_inner)
    }
}
