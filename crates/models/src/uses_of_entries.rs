//! The table of shared entries, and the uses of one entry: `src/engine/uses.rs`.

use std::sync::Arc;

use loom::thread;

use super::uses::{Use, UseTable};
use crate::sync::{AtomicUsize, Ordering, explore};

/// An entry that counts the live entries.
struct OwnerEntry(Arc<AtomicUsize>);

impl Drop for OwnerEntry {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A table, and the number of its live entries.
#[derive(Clone)]
struct Model {
    table: Arc<UseTable<u8, OwnerEntry>>,
    entries: Arc<AtomicUsize>,
}

impl Model {
    fn new() -> Self {
        Self {
            table: Arc::default(),
            entries: Arc::new(AtomicUsize::new(0)),
        }
    }

    fn enter(&self) -> Use<u8, OwnerEntry> {
        let entries = self.entries.clone();
        self.table.enter(1, move || {
            entries.fetch_add(1, Ordering::SeqCst);
            OwnerEntry(entries)
        })
    }

    /// Asserts that the key has this entry while `used` lives.
    fn is_the_only_one(&self, used: &Use<u8, OwnerEntry>) {
        let again = self.enter();
        assert!(
            std::ptr::eq::<OwnerEntry>(&**used, &*again),
            "one key has two live entries"
        );
    }

    /// Asserts that no entry is left after the last use.
    fn is_over(&self) {
        assert!(
            self.table.collect(|key, _| [*key]).is_empty(),
            "an unused entry stays in the table"
        );
        assert_eq!(self.entries.load(Ordering::SeqCst), 0, "an entry leaks");
    }
}

/// Two threads enter a key again and again, and compare their entries.
pub fn entered_by_two_threads() {
    explore(Some(3), || {
        let model = Model::new();
        let other = model.clone();
        let thread = thread::spawn(move || {
            let first = other.enter();
            other.is_the_only_one(&first);
            drop(first);
            drop(other.enter());
        });
        let first = model.enter();
        model.is_the_only_one(&first);
        drop(first);
        thread.join().unwrap();
        model.is_over();
    });
}

/// Two threads drop the last two uses while a third thread enters.
pub fn entered_while_the_last_uses_end() {
    explore(Some(3), || {
        let model = Model::new();
        let used = model.enter();
        let again = used.clone();
        let ends = thread::spawn(move || drop(used));
        let other = model.clone();
        let begins = thread::spawn(move || {
            let used = other.enter();
            other.is_the_only_one(&used);
        });
        drop(again);
        ends.join().unwrap();
        begins.join().unwrap();
        model.is_over();
    });
}

/// A use is cloned and dropped on another thread, as by a tenure, while a third thread enters.
pub fn cloned_while_entered() {
    explore(Some(3), || {
        let model = Model::new();
        let other = model.clone();
        let used = model.enter();
        let enters = thread::spawn(move || drop(other.enter()));
        let clone = used.clone();
        let ends = thread::spawn(move || drop(clone));
        drop(used);
        enters.join().unwrap();
        ends.join().unwrap();
        model.is_over();
    });
}
