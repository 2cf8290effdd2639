//! The reply of a script to each operation.

use crate::server_text;

/// The reply to one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// By the numbers of `lua/batch.lua`.
    pub status: i64,
    /// What follows the status.
    pub detail: Detail,
}

/// The detail that follows the status of a [`Reply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    /// A status alone.
    Nothing,
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
    /// Several numbers.
    Numbers(Vec<i64>),
}

/// The statuses of `lua/batch.lua`, by its numbers.
const DONE: i64 = 0;
const BUSY: i64 = 1;
const ABSENT: i64 = 2;
const WRONG_KIND: i64 = 3;
const FAILED: i64 = 4;

/// A [`Reply`] by its status.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done(Detail),
    Busy { remaining: i64 },
    Absent,
}

/// Why an operation did not take effect, other than by the state of the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The key holds something that is not a lock of this kind.
    WrongKind { found: String },
    /// The server is in a temporary state: the operation did not take effect as a whole, and a retry may succeed.
    Transient { message: String },
    /// The server refused a command of the script, or the script.
    Failed { message: String },
}

impl Refusal {
    /// The server's words.
    pub(crate) fn message(&self) -> &str {
        match self {
            Refusal::WrongKind { found } => found,
            Refusal::Transient { message } | Refusal::Failed { message } => message,
        }
    }

    /// Reads the refusal from the server's error message.
    pub(crate) fn from_message(message: String) -> Self {
        let message = server_text::shown(&message);
        if names_state(&message) || has_passing_words(&message) {
            Refusal::Transient { message }
        } else {
            Refusal::Failed { message }
        }
    }

    /// Whether the server cannot serve while it starts or a failover lasts, like a server without a connection.
    pub(crate) fn is_of_failover(&self) -> bool {
        names_state(self.message())
    }

    /// Whether the message is of a script of this crate, which would refuse a repetition too.
    pub(crate) fn is_of_script(message: &str) -> bool {
        const TEXTS: [&str; 2] = [
            "that is too many permits",
            "a later attempt has used this key",
        ];
        TEXTS.iter().any(|text| message.contains(text))
    }
}

/// Whether the message is Redis' own about a state of the server or of a slot that passes.
fn names_state(message: &str) -> bool {
    const CODES: [&str; 9] = [
        "BUSY",
        "LOADING",
        "CLUSTERDOWN",
        "MASTERDOWN",
        "READONLY",
        "NOREPLICAS",
        "TRYAGAIN",
        "MOVED",
        "ASK",
    ];
    // Errors of a script in a slot that is leaving, or in a cluster that has just gone down. The order of the script's
    // commands makes it safe to repeat the whole script.
    const IN_SCRIPTS: [&str; 2] = ["access a non local key", "while the cluster is down"];
    let in_script = IN_SCRIPTS.iter().any(|text| message.contains(text));
    in_script || CODES.contains(&code(without_position(message)))
}

/// The message without the position in a script, which servers before 7 prefix: `@user_script: 12: -READONLY You can't ..`.
fn without_position(message: &str) -> &str {
    message.rsplit_once(": -").map_or(message, |(_, text)| text)
}

fn code(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

/// Whether a provider or proxy says in words of its own that it does not serve now, or the disk of the server is full.
fn has_passing_words(message: &str) -> bool {
    const WORDS: [&str; 6] = [
        "misconf",
        "limit exceeded",
        "quota",
        "try again",
        "throttl",
        "too many requests",
    ];
    let text = without_position(message);
    // A server quotes what a caller sent, such as a lock's name.
    let quoted = [" '", " `", " \""].map(|quote| text.find(quote).unwrap_or(text.len()));
    let own = &text[..quoted.into_iter().min().unwrap_or_default()];
    let own = own.to_ascii_lowercase();
    let is_of_user = ["NOAUTH", "NOPERM", "WRONGPASS"].contains(&code(text));
    !is_of_user && WORDS.iter().any(|words| own.contains(words))
}

impl Reply {
    /// Whether a replica answered: it cannot run the operation.
    pub(crate) fn is_of_a_replica(&self) -> bool {
        matches!(&self.detail, Detail::Text(message) if self.status == FAILED && message.contains("READONLY"))
    }

    /// Whether it took effect, now or before.
    pub(crate) fn is_done(&self) -> bool {
        self.status == DONE
    }

    /// The error of the server, if a retry may change it.
    pub(crate) fn transient(&self) -> Option<Refusal> {
        let refusal = self.clone().outcome().err();
        refusal.filter(|refusal| matches!(refusal, Refusal::Transient { .. }))
    }

    pub(crate) fn outcome(self) -> Result<Outcome, Refusal> {
        match (self.status, self.detail) {
            (DONE, detail) => Ok(Outcome::Done(detail)),
            (BUSY, Detail::Number(remaining)) => Ok(Outcome::Busy { remaining }),
            (ABSENT, _) => Ok(Outcome::Absent),
            (WRONG_KIND, Detail::Text(found)) => Err(Refusal::WrongKind {
                found: server_text::shown(&found),
            }),
            (FAILED, Detail::Text(message)) => Err(Refusal::from_message(message)),
            (status, detail) => Err(Refusal::Failed {
                message: format!(
                    "the script returned an unknown reply: status {status}, detail {detail:?}"
                ),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_outcome() {
        let reply = |status, detail| Reply { status, detail }.outcome();
        assert_eq!(
            reply(DONE, Detail::Nothing),
            Ok(Outcome::Done(Detail::Nothing))
        );
        assert_eq!(
            reply(BUSY, Detail::Number(-1)),
            Ok(Outcome::Busy { remaining: -1 })
        );
        assert_eq!(reply(ABSENT, Detail::Number(0)), Ok(Outcome::Absent));
        assert_eq!(
            reply(WRONG_KIND, Detail::Text("string".into())),
            Err(Refusal::WrongKind {
                found: "string".into()
            })
        );
        assert!(matches!(
            reply(FAILED, Detail::Text("OOM command not allowed".into())),
            Err(Refusal::Failed { .. })
        ));
    }

    #[test]
    fn an_unknown_status_is_refused_not_trusted() {
        let odd = Reply {
            status: 99,
            detail: Detail::Number(0),
        };
        assert!(matches!(odd.outcome(), Err(Refusal::Failed { .. })));
        for detail in [Detail::Nothing, Detail::Text("x".into())] {
            let busy_without_a_number = Reply {
                status: BUSY,
                detail,
            };
            assert!(matches!(
                busy_without_a_number.outcome(),
                Err(Refusal::Failed { .. })
            ));
        }
    }

    #[test]
    fn transient_errors_differ_from_permanent_refusals() {
        let transient = |message: &str| {
            matches!(
                Refusal::from_message(message.into()),
                Refusal::Transient { .. }
            )
        };
        assert!(transient("LOADING Redis is loading the dataset in memory"));
        assert!(transient("BUSY Redis is busy running a script."));
        assert!(transient(
            "READONLY You can't write against a read only replica."
        ));
        assert!(transient(
            "@user_script: 12: -READONLY You can't write against a read only replica."
        ));
        assert!(transient("NOREPLICAS Not enough good replicas to write."));
        assert!(transient(
            "ERR Script attempted to access a non local key in a cluster node"
        ));
        for passing in [
            "MISCONF Errors writing to the AOF file: No space left on device",
            "@user_script: 12: -MISCONF Redis is configured to save RDB snapshots, but it's currently unable to",
            "ERR max daily request limit exceeded. Limit: 10000, Usage: 10000.",
            "ERR max requests limit exceeded. Limit: 500000, Usage: 500000.",
            "ERR Please try again later",
            "Too Many Requests",
            "ERR the quota of this database is used up",
            "request throttled",
            "ERR the request can't be served, try again",
            "LIMITED the quota of this account is used up",
        ] {
            assert!(transient(passing), "{passing}");
        }
        assert!(!transient(
            "NOPERM No permissions to access a channel: quota"
        ));
        assert!(!transient("WRONGPASS try again"));
        assert!(!transient("ERR unknown command"));
        assert!(!transient(
            "ERR unknown command 'EVAL', with args beginning with: 'the quota', try again"
        ));
        assert!(!transient("NOPERM this user has no permissions"));
        assert!(!transient("OOM command not allowed"));
        assert!(!transient("BUSYGROUP of streams"));
    }
}
