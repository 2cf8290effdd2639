//! Whether the client listens to the lock's channel.
//!
//! | state | wanted | then |
//! | --- | --- | --- |
//! | Off | a waiter is parked | subscribe: Asked |
//! | Asked | - | the confirmation: On |
//! | On | no waiter, and no tenure | unsubscribe: Off |

use super::time::Time;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum State {
    #[default]
    Off,
    Asked,
    On,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Listener {
    state: State,
    /// Messages of own releases that have not come back yet.
    echoes: u32,
    echoes_until: Time,
}

impl Listener {
    /// Whether to subscribe or to unsubscribe.
    pub fn settle(&mut self, has_parked: bool, is_used: bool) -> Option<bool> {
        match self.state {
            State::Off if has_parked => {
                self.state = State::Asked;
                Some(true)
            }
            State::On if !has_parked && !is_used => {
                self.state = State::Off;
                Some(false)
            }
            _ => None,
        }
    }

    pub fn confirm(&mut self) {
        if self.state == State::Asked {
            self.state = State::On;
        }
    }

    pub fn is_off(&self) -> bool {
        self.state == State::Off
    }

    /// A release that the server announces is sent.
    pub fn expect_echo(&mut self, until: Time) {
        if self.state == State::On {
            self.echoes += 1;
            self.echoes_until = until;
        }
    }

    /// Whether a message is that of an own release.
    pub fn take_echo(&mut self, now: Time) -> bool {
        if self.echoes_until.has_come(now) {
            self.echoes = 0;
        }
        let is_echo = self.echoes > 0;
        self.echoes = self.echoes.saturating_sub(1);
        is_echo
    }

    pub fn forget_echoes(&mut self) {
        self.echoes = 0;
    }

    #[cfg(any(test, feature = "explorer"))]
    pub fn rebase(&mut self, map: impl Fn(Time) -> Time, now: Time) {
        if self.echoes_until.has_come(now) {
            self.echoes = 0;
        }
        self.echoes_until = match self.echoes {
            0 => Time::default(),
            _ => map(self.echoes_until),
        };
    }
}
