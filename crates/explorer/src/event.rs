//! What can happen in a world. The first number is the client, the second one its task, or the place in its queue.

use Event::*;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    Step(u8, u8),
    Poll(u8, u8),
    DropGuard(u8, u8),
    DropFuture(u8, u8),
    Leave(u8, u8),
    Run(u8, u8),
    Answer(u8, u8),
    Subscribe(u8),
    Stream(u8),
    Reconnect(u8),
    Noticed(u8),
    ListenAgain(u8),
    Timer(u8),
    LatePickUp(u8),
    Refuse(u8),
    Allow(u8),
    PutOff(u8),
    LoseMessage(u8),
    Break(u8),
    BreakListening(u8),
    Force,
    Failover(u8),
    /// With whether the holds that are left are released.
    Close(u8, bool),
    Finish(u8),
    Tick {
        quiet: bool,
    },
    ClockTick(u8),
}
impl Event {
    /// Whether fairness makes it happen: the network's and the clients' own doing.
    pub fn is_internal(self) -> bool {
        matches!(
            self,
            Poll(..)
                | Leave(..)
                | Run(..)
                | Answer(..)
                | Subscribe(_)
                | Stream(_)
                | Reconnect(_)
                | Noticed(_)
                | ListenAgain(_)
                | Timer(_)
                | Finish(_)
        )
    }

    pub fn is_fault(self) -> bool {
        matches!(
            self,
            DropGuard(..)
                | DropFuture(..)
                | LatePickUp(_)
                | Refuse(_)
                | PutOff(_)
                | LoseMessage(_)
                | Break(_)
                | BreakListening(_)
                | Force
                | Failover(_)
                | Close(..)
        )
    }
}
