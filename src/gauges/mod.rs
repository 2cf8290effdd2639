//! What is counted of every client: with the feature `metrics` by the facade of that name ([`on`]), else not at all ([`off`]).
//!
//! Names and calls of the facade stand in [`on`] alone; docs/metrics.md says what they mean. No label is a lock's name: kinds,
//! outcomes and reasons are few, names are not.

#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod on;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{Batches, Connections, Gauges, HolderGauge, ON, WaiterGauge};
#[cfg(feature = "metrics")]
pub(crate) use on::{Batches, Connections, Gauges, HolderGauge, ON, WaiterGauge};

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
    /// How an acquisition ended.
    Outcome {
        Acquired = "acquired",
        Busy = "busy",
        Unavailable = "unavailable",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

labels! {
    /// How the renewal of one hold ended.
    RenewalEnd {
        Renewed = "renewed",
        TooFewReplicas = "too-few-replicas",
        Gone = "gone",
        Refused = "refused",
        Unanswered = "unanswered",
    }
}

labels! {
    /// What made a waiter ask again.
    WakeUp {
        Message = "message",
        Reconnection = "reconnection",
        Poll = "poll",
    }
}

labels! {
    /// Why a hold was lost.
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
            LostReason::Closed => Loss::Closed,
        }
    }
}
