//! The Lua scripts as they travel, and what each of their operations answers.

use std::sync::OnceLock;

use bytes::Bytes;

use super::{decimal, packed};
use crate::server_text;

/// A script that runs any number of operations in one call (`lua/batch.lua`).
pub struct Script {
    source: &'static str,
    keys: usize,
    classic: OnceLock<Text>,
    sharded: OnceLock<Text>,
}

/// A script's text, for `EVAL`, and its hexadecimal SHA-1, for `EVALSHA`.
pub(crate) struct Text {
    pub(crate) source: Bytes,
    pub(crate) sha: Bytes,
}

/// How messages are published: all subscribers of a server have to agree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Publishing {
    /// `PUBLISH`.
    Classic,
    /// `SPUBLISH`, to the shard of the channel's slot alone.
    Sharded,
}

/// The line of `lua/batch.lua` that says how.
const CLASSIC: &str = "local PUBLISH = 'PUBLISH'";
const SHARDED: &str = "local PUBLISH = 'SPUBLISH'";

/// The lines of `lua/batch.lua` about where the script runs.
const HERE: &str = "local KEYS, ARGV = KEYS, ARGV\nlocal ARRIVING = false\n";
const ARRIVING: &str = "local sent, KEYS, ARGV = ARGV, {}, {}
for i = 2, #sent do
  local list = i <= sent[1] + 1 and KEYS or ARGV
  list[#list + 1] = sent[i]
end
local ARRIVING = true
";

impl Script {
    pub(crate) const fn new(source: &'static str, keys: usize) -> Self {
        Self {
            source,
            keys,
            classic: OnceLock::new(),
            sharded: OnceLock::new(),
        }
    }

    /// The text that publishes in this way.
    pub(crate) fn text(&self, publishing: Publishing) -> &Text {
        match publishing {
            Publishing::Classic => self.classic.get_or_init(|| Text::new(self.source.into())),
            Publishing::Sharded => self
                .sharded
                .get_or_init(|| Text::new(self.source.replacen(CLASSIC, SHARDED, 1).into())),
        }
    }

    /// The text for the node that a slot is on its way to, which runs with [`arriving`](Self::arriving)'s parts.
    pub(crate) fn text_arriving(&self, publishing: Publishing) -> Bytes {
        let text = &self.text(publishing).source;
        let text = String::from_utf8_lossy(text);
        text.replacen(HERE, ARRIVING, 1).into()
    }

    /// What that text is sent with: one key, and all that the script takes as arguments. The node would refuse several
    /// keys of which one is not there, and none may be where the slot comes from, or that had not sent us.
    pub(crate) fn arriving(&self, operations: &[Operation]) -> (Bytes, Vec<Bytes>) {
        let keys = self.keys(operations);
        let one = keys.clone().next().cloned().unwrap_or_default();
        let count = decimal(keys.clone().count() as u64);
        let rest = keys.chain(self.args_of_all(operations)).cloned();
        (one, std::iter::once(count).chain(rest).collect())
    }

    /// The keys of all operations, in order.
    pub(crate) fn keys<'a>(
        &self,
        operations: &'a [Operation],
    ) -> impl Iterator<Item = &'a Bytes> + Clone {
        let keys = self.keys;
        operations.iter().flat_map(move |parts| &parts[..keys])
    }

    /// The arguments of one operation.
    pub(crate) fn args<'a>(&self, operation: &'a Operation) -> &'a [Bytes] {
        &operation[self.keys..]
    }

    /// The arguments of all operations, as one.
    pub(crate) fn packed_args(&self, operations: &[Operation]) -> Bytes {
        packed::list(self.args_of_all(operations))
    }

    fn args_of_all<'a>(
        &self,
        operations: &'a [Operation],
    ) -> impl Iterator<Item = &'a Bytes> + Clone {
        let keys = self.keys;
        operations.iter().flat_map(move |parts| &parts[keys..])
    }
}

impl Text {
    fn new(source: Bytes) -> Self {
        let sha = sha1_smol::Sha1::from(&source).digest().to_string().into();
        Self { source, sha }
    }
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script")
            .field("sha", &self.text(Publishing::Classic).sha)
            .finish_non_exhaustive()
    }
}

/// The script `lua/<name>.lua`, last of those named: `batch.lua` and the shared functions in front of it, `run.lua`
/// behind.
macro_rules! script {
    (keys = $keys:literal, $($file:literal),+) => {
        $crate::wire::script::Script::new(
            concat!(
                include_str!("../../lua/batch.lua"),
                $(include_str!(concat!("../../lua/", $file, ".lua")),)+
                include_str!("../../lua/run.lua"),
            ),
            $keys,
        )
    };
}
pub(crate) use script;

/// One operation on its way: a script and this operation's keys and arguments.
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) script: &'static Script,
    pub(crate) parts: Operation,
}

/// The keys, then the arguments, of one operation.
pub(crate) type Operation = Vec<Bytes>;

/// What one operation answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub(crate) status: i64,
    pub(crate) detail: Detail,
    /// By which replicas, if that was asked.
    pub(crate) acknowledged: Option<Acknowledged>,
}

/// How many replicas have what a call wrote, and how many were to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) by: u32,
    pub(crate) wanted: u32,
}

impl Acknowledged {
    pub(crate) fn is_enough(self) -> bool {
        self.by >= self.wanted
    }
}

/// What comes with the status of a [`Reply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Detail {
    Nothing,
    Number(i64),
    Text(String),
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
    /// The server is in a state that passes: nothing was done, try again.
    Transient { message: String },
    /// The server refused a command of the script, or the script.
    Failed { message: String },
}

impl Refusal {
    /// The refusal that an error message of the server stands for.
    pub(crate) fn from_message(message: String) -> Self {
        let message = server_text::shown(&message);
        const TRANSIENT: [&str; 9] = [
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
        // Servers before 7 put the place in the script in front: `@user_script: 12: -READONLY You can't ..`.
        // What a script meets in a slot that is leaving, or in a cluster that has just gone down: by the order of what it
        // does, nothing has been done that doing all of it again would not put right.
        const IN_SCRIPTS: [&str; 2] = ["access a non local key", "while the cluster is down"];
        let in_script = IN_SCRIPTS.iter().any(|told| message.contains(told));
        let told = message
            .rsplit_once(": -")
            .map_or(&*message, |(_, told)| told);
        let code = told.split(' ').next().unwrap_or_default();
        if in_script || TRANSIENT.contains(&code) {
            Refusal::Transient { message }
        } else {
            Refusal::Failed { message }
        }
    }
}

impl Reply {
    /// Whether a replica answered, which cannot do what was asked.
    pub(crate) fn is_of_a_replica(&self) -> bool {
        matches!(&self.detail, Detail::Text(message) if self.status == FAILED && message.contains("READONLY"))
    }

    /// Whether it took effect, now or before.
    pub(crate) fn is_done(&self) -> bool {
        self.status == DONE
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
                message: format!("the script answered {status} {detail:?}, which it never should"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sharded_script_differs_in_how_it_publishes_and_in_nothing_else() {
        static SCRIPT: Script = script!(keys = 1, "reentrant_release");
        let text =
            |publishing| String::from_utf8_lossy(&SCRIPT.text(publishing).source).into_owned();
        let (classic, sharded) = (text(Publishing::Classic), text(Publishing::Sharded));
        assert_eq!(classic.matches("'PUBLISH'").count(), 1);
        assert_eq!(sharded, classic.replace("'PUBLISH'", "'SPUBLISH'"));
    }

    #[test]
    fn where_a_slot_arrives_all_but_one_key_are_arguments() {
        static SCRIPT: Script = script!(keys = 3, "fair_release");
        let here = String::from_utf8_lossy(&SCRIPT.text(Publishing::Sharded).source).into_owned();
        assert_eq!(here.matches(HERE).count(), 1);
        let there = SCRIPT.text_arriving(Publishing::Sharded);
        let there = String::from_utf8_lossy(&there).into_owned();
        assert_eq!(there, here.replace(HERE, ARRIVING));
        let operation =
            |of: &str| ["l", "q", "p", "a", "b"].map(|part| Bytes::from(format!("{part}{of}")));
        let operations = [operation("1").into(), operation("2").into()];
        let (key, args) = SCRIPT.arriving(&operations);
        assert_eq!(key, "l1");
        assert_eq!(
            args,
            [
                "6", "l1", "q1", "p1", "l2", "q2", "p2", "a1", "b1", "a2", "b2"
            ]
        );
    }

    #[test]
    fn every_status_has_its_outcome() {
        let reply = |status, detail| {
            Reply {
                status,
                detail,
                acknowledged: None,
            }
            .outcome()
        };
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
            acknowledged: None,
        };
        assert!(matches!(odd.outcome(), Err(Refusal::Failed { .. })));
        for detail in [Detail::Nothing, Detail::Text("x".into())] {
            let busy_without_a_number = Reply {
                status: BUSY,
                detail,
                acknowledged: None,
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
        assert!(!transient("NOPERM this user has no permissions"));
        assert!(!transient("OOM command not allowed"));
        assert!(!transient("BUSYGROUP of streams"));
    }
}
