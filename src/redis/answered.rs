//! The answer to a call, split into the answers to its operations.

use super::{CallError, frame};
use crate::{durability::Acknowledged, transport::Frame, wire::Reply};

/// A reply, and the acknowledgements of replicas, if the call waited for them. The reply to a whole call is a [`Frame`].
#[derive(Debug, Clone)]
pub struct Answered<T = Reply> {
    /// The reply.
    pub reply: T,
    /// The replicas, if the call waited for them.
    pub acknowledged: Option<Acknowledged>,
}

impl From<Frame> for Answered<Frame> {
    fn from(reply: Frame) -> Self {
        Self {
            reply,
            acknowledged: None,
        }
    }
}

impl Answered<Frame> {
    /// The answer to each of the `operations` operations of the call.
    pub(super) fn read_replies(self, operations: usize) -> Result<Vec<Answered>, CallError> {
        let acknowledged = self.acknowledged;
        let answered = |reply| Answered {
            reply,
            acknowledged: acknowledged.clone(),
        };
        let replies = frame::replies(self.reply, operations)?;
        Ok(replies.into_iter().map(answered).collect())
    }
}
