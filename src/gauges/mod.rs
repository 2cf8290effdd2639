//! The gauges of a client: with the feature `metrics` by the facade `metrics` ([`on`]), else without any effect ([`off`]).
//!
//! Only [`on`] calls the facade; docs/metrics.md explains the names. No label is a lock's name, because names have no bound, unless
//! [`Config::lock_name_label`](crate::Config::lock_name_label) asks for it.

#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod on;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{Batches, Connections, Gauges, HolderGauge, ON, Oldest, WaiterGauge};
#[cfg(feature = "metrics")]
pub(crate) use on::{Batches, Connections, Gauges, HolderGauge, ON, Oldest, WaiterGauge};

use crate::error::LostReason;

/// The values of a label.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(dead_code, reason = "some are for gauges only")]
        pub(crate) enum $name { $($variant,)* }

        impl $name {
            #[cfg(feature = "metrics")]
            const ALL: [Self; [$($label),*].len()] = [$(Self::$variant),*];

            #[allow(dead_code, reason = "some are for gauges only")]
            pub(crate) fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)* }
            }
        }
    };
}

labels! {
    /// The outcome of an acquisition.
    Outcome {
        Acquired = "acquired",
        Busy = "busy",
        Unavailable = "unavailable",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

labels! {
    /// The outcome of the renewal of one hold.
    RenewalEnd {
        Renewed = "renewed",
        TooFewReplicas = "too-few-replicas",
        Gone = "gone",
        Refused = "refused",
        Unanswered = "unanswered",
    }
}

labels! {
    /// The cause of a waiter's next attempt.
    WakeUp {
        Message = "message",
        Reconnection = "reconnection",
        Poll = "poll",
    }
}

labels! {
    /// The reason of a loss.
    Loss {
        Expired = "expired",
        Gone = "gone",
        Closed = "closed",
    }
}

impl From<LostReason> for Loss {
    fn from(reason: LostReason) -> Self {
        match reason {
            LostReason::Expired => Loss::Expired,
            LostReason::Gone => Loss::Gone,
            LostReason::Closed | LostReason::RuntimeEnded => Loss::Closed,
        }
    }
}
