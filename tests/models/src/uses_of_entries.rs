//! The uses of one key's value: `src/engine/uses.rs`.

use std::sync::Arc;

use loom::thread;

use super::uses::{Use, UseTable};
use crate::sync::{AtomicUsize, Ordering, explore};

/// A value that counts how many of its kind there are.
struct OwnerEntry(Arc<AtomicUsize>);

impl Drop for OwnerEntry {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A table, and how many of its values exist.
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

    /// As long as `used` is in use, the key's value is this one.
    fn is_the_only_one(&self, used: &Use<u8, OwnerEntry>) {
        let again = self.enter();
        assert!(
            std::ptr::eq::<OwnerEntry>(&**used, &*again),
            "one key has two live entries"
        );
    }

    /// Nothing is in use any more.
    fn is_over(&self) {
        assert!(
            self.table.collect(|key, _| [*key]).is_empty(),
            "a entry that is not used stays in the table"
        );
        assert_eq!(self.entries.load(Ordering::SeqCst), 0, "a entry leaks");
    }
}

/// Two threads use a key again and again; each looks whether the other has the same value.
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

/// Two threads end the two last uses, while a third one begins one.
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

/// A use is cloned and moved to another thread, as a tenure does, while its key is entered.
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
