//! The newest Redisson and this crate on clusters and behind sentinels: the tests of `main.rs`, for
//! the kinds that differ in their keys and channels.

macro_rules! channels {
    ($version:ident) => {
        suite! { $version: channels::both_languages_subscribe_to_one_sort_of_channel }
    };
}

/// The tests of `queue` that need no services of their own.
macro_rules! order {
    ($version:ident, $kind:ident) => {
        suite! { $version, $kind:
            fair::all_waiters_enter_in_order
            fair::a_waiter_that_leaves_changes_no_other_place
        }
    };
}

macro_rules! moving_slots {
    ($version:ident) => {
        suite! { $version: resharding::waiters_of_a_slot_that_moves }
    };
}

macro_rules! on {
    ($topology:ident: $($module:ident { $($sets:tt)+ })*) => { $(
        mod $module { sets! { $topology $($sets)+ } }
    )* };
}

macro_rules! failovers {
    ($version:ident) => {
        suite! { $version:
            failover::a_killed_master_beside_redisson
            failover::a_stopped_master_beside_redisson
            failover::a_failover_by_order_beside_redisson
            failover::a_master_ahead_of_its_replicas
        }
    };
}

mod sentinels {
    on! { on_sentinels:
        reentrant_lock { REENTRANT: every_lock exclusive_lock }
        fair_lock { FAIR: every_lock exclusive_lock order }
        read_lock { READ: every_lock }
        write_lock { WRITE: every_lock exclusive_lock }
        leases { : all_kinds }
        read_write_locks { : read_write_lock }
        losses { : failovers }
    }
}

mod clusters {
    on! { on_cluster:
        reentrant_lock { REENTRANT: every_lock exclusive_lock }
        fair_lock { FAIR: every_lock exclusive_lock order }
        read_lock { READ: every_lock }
        write_lock { WRITE: every_lock exclusive_lock }
        leases { : all_kinds }
        read_write_locks { : read_write_lock }
        losses { : failovers }
        messages { : channels }
        resharding { : moving_slots }
    }
}

/// Both sides are set not to use sharded channels.
mod classic_clusters {
    on! { on_classic_cluster:
        reentrant_lock { REENTRANT: every_lock exclusive_lock }
        fair_lock { FAIR: every_lock }
        read_lock { READ: every_lock }
        write_lock { WRITE: every_lock }
        messages { : channels }
        resharding { : moving_slots }
    }
}
