//! The body that a task passes to `run`.

use std::{sync::OnceLock, time::Duration};

use tokio::time::sleep;

use super::{
    handle::{Body, Boxed, Peek},
    held::Outer,
    log::{HoldId, Log, Spot, What},
};

/// Records its hold, pauses, and checks the guard after each pause.
pub struct Inside<'a> {
    pub log: &'a Log,
    pub outer: &'a Outer<'a>,
    pub spot: Spot,
    pub lease: Duration,
    pub pauses: Vec<Duration>,
    pub hold: OnceLock<HoldId>,
    pub over: OnceLock<()>,
}

impl Body for Inside<'_> {
    fn inside<'a>(&'a self, guard: &'a dyn Peek) -> Boxed<'a, ()> {
        Box::pin(async move {
            self.outer.look();
            let hold = self.log.enters(self.spot, self.lease, guard);
            let _ = self.hold.set(hold);
            for pause in &self.pauses {
                sleep(*pause).await;
                if self.log.probe(self.spot, hold, guard).is_some() {
                    // `run` drops its body when the hold is lost.
                    return std::future::pending().await;
                }
            }
            let _ = self.over.set(());
            self.log.note(self.spot, What::Ends { hold });
        })
    }
}
