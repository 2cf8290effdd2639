//! The pages of the repository's `docs` folder: kinds of locks, guarantees, operation, tests, protocol and design.
//!
//! | page | it answers |
//! | --- | --- |
//! | [`fair_lock`], [`read_write_lock`], [`fenced_lock`], [`other_locks`], [`simple_lock`], [`groups`] | What does this kind of lock do, and which keys does it use? |
//! | [`semaphore`], [`permit_expirable_semaphore`], [`count_down_latch`] | The same for semaphores and latches. |
//! | [`guarantees`] | What can be relied upon, under which conditions? |
//! | [`operations`] | Which set-up, which rights, which figures to watch? |
//! | [`your_provider`] | Which URL and settings for a managed service, a proxy or another server? |
//! | [`metrics`] | Which gauges, spans, dashboard and alerts are there? |
//! | [`testing_your_code`] | How do I test code that acquires locks? |
//! | [`protocol`] | What do Redisson and this crate write to Redis? |
//! | [`from_redisson`], [`from_other_libraries`] | What corresponds to this call or setting? |
//! | [`design`] | How does the crate work, and why so? |
//! | [`glossary`] | What does this term mean? |
//!
//! Comments cite further pages of the repository: "invariant 4" is in
//! [invariants.md](https://docs.rs/crate/redisson-lock/latest/source/docs/invariants.md), "P-W9" in
//! [pitfalls.md](https://docs.rs/crate/redisson-lock/latest/source/docs/pitfalls.md).
//! [testing.md](https://docs.rs/crate/redisson-lock/latest/source/docs/testing.md) lists the tests of each promise.

/// A page links to other pages as files, for readers of the repository. `links.md` comes first and defines the same labels
/// as modules: the first of two definitions counts.
macro_rules! page {
    ($module:ident, $file:literal) => {
        #[doc = include_str!("links.md")]
        #[doc = ""]
        #[doc = include_str!(concat!("../../docs/", $file))]
        pub mod $module {}
    };
}

page!(count_down_latch, "count-down-latch.md");
page!(design, "design.md");
page!(fair_lock, "fair-lock.md");
page!(fenced_lock, "fenced-lock.md");
page!(from_other_libraries, "from-other-libraries.md");
page!(from_redisson, "from-redisson.md");
page!(glossary, "glossary.md");
page!(groups, "groups.md");
page!(guarantees, "guarantees.md");
page!(metrics, "metrics.md");
page!(operations, "operations.md");
page!(other_locks, "other-locks.md");
page!(permit_expirable_semaphore, "permit-expirable-semaphore.md");
page!(protocol, "protocol.md");
page!(read_write_lock, "read-write-lock.md");
page!(semaphore, "semaphore.md");
page!(simple_lock, "simple-lock.md");
page!(your_provider, "your-provider.md");
page!(testing_your_code, "testing-your-code.md");
