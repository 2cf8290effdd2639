//! The completion of an operation: makes it, and takes its answer.

use crate::{
    redis::{Answered, CallError},
    wire::script::Operation,
};

/// A completion: makes its operation when the batch leaves, and takes the answer.
///
/// A completion is dropped without an answer if it is not wanted any more, or if the client has closed. No lock of the dispatch is held
/// while it is built, completed or dropped.
pub(crate) trait Complete: Send + 'static {
    /// Whether the answer is still wanted. The lane is locked meanwhile, so this takes no lock and does not panic.
    fn is_wanted(&self) -> bool;

    /// The operation, which leaves now; `None` if it is not wanted any more.
    fn build(&mut self) -> Option<Operation>;

    /// Takes the answer.
    fn complete(self, answer: Result<Answered, CallError>);
}
