//! The same for latches.

use explorer::latches;

systems! {
    latches::small();
    pair: "latch-pair",
    alone: "latch-alone",
    set_anew: "latch-set-anew",
    tries: "latch-tries",
    refused: "latch-refused",
    failover: "latch-failover",
    batches: "latch-batches",
    elsewhere: "latch-elsewhere",
    alone_anew: "latch-alone-anew",
}
