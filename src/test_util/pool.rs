//! Lua interpreters, reused from one network to the next.

use std::sync::{Mutex, PoisonError};

use super::Interpreter;

/// Interpreters that no network uses now: each has compiled the scripts, which takes longer than many a test.
static POOL: Mutex<Vec<Interpreter>> = Mutex::new(Vec::new());

/// An interpreter of the pool, to which it returns.
pub(super) struct Pooled(Option<Interpreter>);

impl Pooled {
    pub(super) fn take() -> Self {
        let free = POOL.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self(Some(free.unwrap_or_else(Interpreter::new)))
    }

    pub(super) fn get(&self) -> &Interpreter {
        self.0.as_ref().expect("it is taken out only by drop")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        // A script that panicked has left its data in the interpreter.
        if !std::thread::panicking() {
            let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
            pool.extend(self.0.take());
        }
    }
}
