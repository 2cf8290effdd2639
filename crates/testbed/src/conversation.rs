//! Assigns the replies on a connection to their requests.

use std::collections::{HashSet, VecDeque};

use crate::faults::Fate;
use crate::resp;

/// The unanswered requests of a connection, in order.
///
/// `CLIENT REPLY OFF` and `MONITOR` are not supported: they break "one request, one reply".
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    asked: VecDeque<Asked>,
    /// In RESP2 pushes are plain arrays, and only a subscriber gets them.
    resp3: bool,
    subscribed: [HashSet<Vec<u8>>; 3],
}

#[derive(Debug)]
struct Asked {
    verb: Verb,
    fate: Fate,
}

#[derive(Debug, PartialEq, Eq)]
enum Verb {
    Hello,
    Reset,
    /// Answered by this many confirmations, or by one error; `None` until the first one when it names no channel.
    Subscription {
        change: Change,
        awaited: Option<usize>,
    },
    Other,
}

/// `[P|S]SUBSCRIBE` or `[P|S]UNSUBSCRIBE`: which of the three sets, and whether it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    set: usize,
    adds: bool,
}

/// The meaning of a frame from the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The reply to the oldest unanswered request, with the fate of that request.
    Reply(Fate),
    /// A published message.
    Message,
    /// Any other frame that is not a reply: confirmations, invalidations, a refusal of the connection.
    Push,
}

impl Conversation {
    /// The fates of the requests without a reply.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = Fate> {
        self.asked.iter().map(|asked| asked.fate)
    }

    /// Records a request before it is forwarded.
    pub(crate) fn asked(&mut self, request: &[u8], fate: Fate) {
        let words = resp::words(request, usize::MAX);
        // A server skips empty requests.
        let Some((command, arguments)) = words.split_first() else {
            return;
        };
        self.asked.push_back(Asked {
            verb: verb(command, arguments.len()),
            fate,
        });
    }

    /// Classifies a frame from the server.
    pub(crate) fn answered(&mut self, frame: &[u8]) -> Answer {
        let body = resp::without_attributes(frame);
        let push = body.first() == Some(&b'>');
        if push || (body.first() == Some(&b'*') && self.listens_in_resp2()) {
            let words = resp::words(body, 2);
            let (kind, channel) = (words.first().copied(), words.get(1).copied());
            let kind = kind.unwrap_or_default();
            if matches!(kind, b"message" | b"pmessage" | b"smessage") {
                return Answer::Message;
            }
            if let Some(change) = change(kind) {
                self.confirmed(change, channel.unwrap_or_default());
                return Answer::Push;
            }
            if push {
                return Answer::Push;
            }
        }
        self.replied(body)
    }

    fn listens_in_resp2(&self) -> bool {
        let asking = matches!(
            self.asked.front(),
            Some(Asked {
                verb: Verb::Subscription { .. },
                ..
            })
        );
        !self.resp3 && (asking || self.subscribed.iter().any(|set| !set.is_empty()))
    }

    fn confirmed(&mut self, confirmed: Change, channel: &[u8]) {
        let set = &mut self.subscribed[confirmed.set];
        // Without channels, UNSUBSCRIBE is confirmed for each channel, or once for none.
        let all = set.len().max(1);
        if confirmed.adds {
            set.insert(channel.to_vec());
        } else {
            set.remove(channel);
        }
        // A confirmation without a request means that a slot has moved away.
        if let Some(Asked {
            verb: Verb::Subscription { change, awaited },
            ..
        }) = self.asked.front_mut()
            && *change == confirmed
        {
            let left = awaited.unwrap_or(all) - 1;
            *awaited = Some(left);
            if left == 0 {
                self.asked.pop_front();
            }
        }
    }

    fn replied(&mut self, body: &[u8]) -> Answer {
        let Some(asked) = self.asked.pop_front() else {
            return Answer::Push;
        };
        let refused = body.first() == Some(&b'-');
        match asked.verb {
            Verb::Hello if !refused => self.resp3 = body.first() == Some(&b'%'),
            Verb::Reset => {
                *self = Self {
                    asked: std::mem::take(&mut self.asked),
                    ..Self::default()
                }
            }
            _ => {}
        }
        Answer::Reply(asked.fate)
    }
}

fn verb(command: &[u8], arguments: usize) -> Verb {
    let command = command.to_ascii_lowercase();
    match command.as_slice() {
        b"hello" => Verb::Hello,
        b"reset" => Verb::Reset,
        name => change(name).map_or(Verb::Other, |change| Verb::Subscription {
            change,
            awaited: (arguments > 0).then_some(arguments),
        }),
    }
}

fn change(name: &[u8]) -> Option<Change> {
    let (set, adds) = match name {
        b"subscribe" => (0, true),
        b"unsubscribe" => (0, false),
        b"psubscribe" => (1, true),
        b"punsubscribe" => (1, false),
        b"ssubscribe" => (2, true),
        b"sunsubscribe" => (2, false),
        _ => return None,
    };
    Some(Change { set, adds })
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
