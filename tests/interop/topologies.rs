//! The newest Redisson and this crate on servers that belong together, as Java services have them: the tests of `main.rs`
//! once more, of the kinds that differ in their keys and channels.

mod channels;

macro_rules! on {
    ($topology:ident: $($module:ident { $($sets:tt)+ })*) => { $(
        mod $module { sets! { $topology $($sets)+ } }
    )* };
}

mod sentinels {
    on! { on_sentinels:
        reentrant_lock { REENTRANT: every_lock exclusive_lock }
        fair_lock { FAIR: every_lock exclusive_lock queue }
        read_lock { READ: every_lock }
        write_lock { WRITE: every_lock exclusive_lock }
        leases { : all_kinds }
        read_write_locks { : read_write_lock }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_listens_where_it_is_told_to() {
    if let Some(version) = crate::stage::Version::newest().unless_skipped() {
        channels::java_listens_where_it_is_told_to(version).await;
    }
}
