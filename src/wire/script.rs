//! The Lua scripts and their operations, in the form that is sent.

use std::sync::OnceLock;

use bytes::Bytes;

use super::{decimal, packed};

/// A script that runs any number of operations in one call (`lua/batch.lua`).
pub struct Script {
    source: &'static str,
    /// The file of its operation in `lua/`, without the ending.
    name: &'static str,
    keys: usize,
    classic: OnceLock<Text>,
    sharded: OnceLock<Text>,
}

/// A script's text, for `EVAL`, and its hexadecimal SHA-1, for `EVALSHA`.
pub(crate) struct Text {
    pub(crate) source: Bytes,
    pub(crate) sha: Bytes,
}

/// How messages are published. All clients of a server must agree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Publishing {
    /// `PUBLISH`.
    Classic,
    /// `SPUBLISH`, to the shard of the channel's slot alone.
    Sharded,
}

/// The line of `lua/batch.lua` that sets the way of publishing.
const CLASSIC: &str = "local PUBLISH = 'PUBLISH'";
const SHARDED: &str = "local PUBLISH = 'SPUBLISH'";

/// The lines of `lua/batch.lua` that differ at a node to which a slot moves.
const HERE: &str = "local KEYS, ARGV = KEYS, ARGV\nlocal ARRIVING = false\n";
const ARRIVING: &str = "local sent, KEYS, ARGV = ARGV, {}, {}
for i = 2, #sent do
  local list = i <= sent[1] + 1 and KEYS or ARGV
  list[#list + 1] = sent[i]
end
local ARRIVING = true
";

impl Script {
    pub(crate) const fn new(source: &'static str, files: &[&'static str], keys: usize) -> Self {
        Self {
            source,
            name: files[files.len() - 1],
            keys,
            classic: OnceLock::new(),
            sharded: OnceLock::new(),
        }
    }

    /// The name of its operation.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The script's text for this way of publishing.
    pub(crate) fn text(&self, publishing: Publishing) -> &Text {
        match publishing {
            Publishing::Classic => self.classic.get_or_init(|| Text::new(self.source)),
            Publishing::Sharded => self
                .sharded
                .get_or_init(|| Text::new(self.source.replacen(CLASSIC, SHARDED, 1).leak())),
        }
    }

    /// The text for the node to which a slot moves. It takes the arguments of [`arriving`](Self::arriving).
    pub(crate) fn text_arriving(&self, publishing: Publishing) -> Bytes {
        let text = &self.text(publishing).source;
        let text = String::from_utf8_lossy(text);
        text.replacen(HERE, ARRIVING, 1).into()
    }

    /// The key and the arguments for that text: one key, and everything else as arguments. The node would refuse several
    /// keys of which one is absent. The old node redirects here only if no key is left there.
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

    /// The arguments of all operations, packed into one.
    pub(crate) fn packed_args(&self, operations: &[Operation]) -> Bytes {
        packed::list(self.args_of_all(operations))
    }

    /// The arguments of all operations, in order.
    pub(crate) fn args_of_all<'a>(
        &self,
        operations: &'a [Operation],
    ) -> impl Iterator<Item = &'a Bytes> + Clone {
        let keys = self.keys;
        operations.iter().flat_map(move |parts| &parts[keys..])
    }
}

impl Text {
    /// One text per script and way of publishing lives for ever. Static bytes need no reference count, which threads would
    /// share.
    fn new(source: &'static str) -> Self {
        let sha = sha1_smol::Sha1::from(source).digest().to_string().leak();
        Self {
            source: Bytes::from_static(source.as_bytes()),
            sha: Bytes::from_static(sha.as_bytes()),
        }
    }
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// The script `lua/<name>.lua` of the last name. `batch.lua` and the shared functions of the earlier names precede it;
/// `run.lua` follows.
macro_rules! script {
    (keys = $keys:literal, $($file:literal),+) => {
        $crate::wire::script::Script::new(
            concat!(
                include_str!("../../lua/batch.lua"),
                $(include_str!(concat!("../../lua/", $file, ".lua")),)+
                include_str!("../../lua/run.lua"),
            ),
            &[$($file),+],
            $keys,
        )
    };
}
pub(crate) use script;

/// One operation to send: a script, and the operation's keys and arguments.
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) script: &'static Script,
    pub(crate) parts: Operation,
}

/// The keys, then the arguments, of one operation.
pub type Operation = Vec<Bytes>;

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
}
