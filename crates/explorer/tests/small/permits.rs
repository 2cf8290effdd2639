//! The same for permits.

use explorer::permits;

systems! {
    permits::small();
    pair: "permits-pair",
    alone: "permits-alone",
    many: "permits-many",
    many_alone: "permits-many-alone",
    local: "permits-local",
    tries: "permits-tries",
    refused: "permits-refused",
    failover: "permits-failover",
    failover_kept: "permits-failover-kept",
    elsewhere: "permits-elsewhere",
    given_up: "permits-given-up",
    lanes: "permits-lanes",
    batches: "permits-batches",
    batches_doubt: "permits-batches-doubt",
    apart: "permits-apart",
    left: "permits-left",
    few_first: "permits-few-first",
    behind_many: "permits-behind-many",
}
