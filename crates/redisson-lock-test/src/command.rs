//! The known commands, and the checks before the server runs one.

use std::{collections::HashMap, sync::LazyLock};

use foldhash::fast::FixedState;

use super::{
    Failure, Outcome,
    commands::{hashes, keys, lists, messages, sorted_sets, strings},
    data::Data,
    server::{Caller, sessions},
};

/// A command by its name.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// The number of words, the name included; negative if there may be more.
    arity: i32,
    flags: u8,
    pub(crate) action: Action,
}

/// The function of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    /// A command on data, which scripts may call.
    Data(fn(&mut Data, &[&[u8]], u64) -> Outcome),
    /// A command on the connection.
    Session(fn(&mut Caller<'_>, &[&[u8]]) -> Outcome),
    /// A container: the next word names the command.
    Container(&'static [Command]),
}

/// Changes the data.
pub(crate) const WRITE: u8 = 1;
/// May need memory.
pub(crate) const DENY_OOM: u8 = 2;
/// Is refused in scripts.
pub(crate) const NO_SCRIPT: u8 = 4;
/// Runs while the data is loaded.
pub(crate) const LOADING: u8 = 8;
/// Runs on a replica without its master.
pub(crate) const STALE: u8 = 16;
/// Needs no login.
pub(crate) const NO_AUTH: u8 = 32;
/// Runs beside a script that takes too long.
pub(crate) const ALLOW_BUSY: u8 = 64;

/// The flags of the commands that open a connection.
pub(crate) const SESSION: u8 = NO_SCRIPT | LOADING | STALE;

impl Command {
    pub(crate) const fn data(
        name: &'static str,
        arity: i32,
        flags: u8,
        run: fn(&mut Data, &[&[u8]], u64) -> Outcome,
    ) -> Self {
        let action = Action::Data(run);
        Self {
            name,
            arity,
            flags,
            action,
        }
    }

    pub(crate) const fn session(
        name: &'static str,
        arity: i32,
        flags: u8,
        run: fn(&mut Caller<'_>, &[&[u8]]) -> Outcome,
    ) -> Self {
        let action = Action::Session(run);
        Self {
            name,
            arity,
            flags,
            action,
        }
    }

    pub(crate) const fn container(name: &'static str, commands: &'static [Command]) -> Self {
        Self {
            name,
            arity: -2,
            flags: 0,
            action: Action::Container(commands),
        }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether the command takes this number of arguments, the name not included.
    pub(crate) fn takes(&self, args: usize) -> bool {
        let words = i32::try_from(args + self.words()).unwrap_or(i32::MAX);
        if self.arity < 0 {
            words >= -self.arity
        } else {
            words == self.arity
        }
    }

    /// The number of words in the name.
    fn words(&self) -> usize {
        1 + usize::from(self.name.contains('|'))
    }

    /// The command that the first arguments choose, and its own arguments.
    pub(crate) fn choose<'a, 'b>(
        &'static self,
        args: &'a [&'b [u8]],
    ) -> Result<(&'static Command, &'a [&'b [u8]]), Choice> {
        let Action::Container(commands) = self.action else {
            return Ok((self, args));
        };
        let (first, rest) = args.split_first().ok_or(Choice::Missing)?;
        let mut commands = commands.iter();
        let chosen = commands.find(|command| command.is_second_word(first));
        chosen.map(|command| (command, rest)).ok_or(Choice::Unknown)
    }

    fn is_second_word(&self, word: &[u8]) -> bool {
        let second = self.name.split_once('|').map(|(_, second)| second);
        second.is_some_and(|second| word.eq_ignore_ascii_case(second.as_bytes()))
    }

    pub(crate) fn wrong_number(&self) -> Failure {
        format!("ERR wrong number of arguments for '{}' command", self.name).into()
    }
}

/// The error of a container without a matching command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Missing,
    Unknown,
}

/// All commands by their names.
static COMMANDS: LazyLock<HashMap<u128, &'static Command, FixedState>> = LazyLock::new(|| {
    let all = all();
    all.filter_map(|command| Some((packed(command.name.as_bytes())?, command)))
        .collect()
});

pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    let lists = [
        keys::COMMANDS,
        strings::COMMANDS,
        hashes::COMMANDS,
        lists::COMMANDS,
        sorted_sets::COMMANDS,
        messages::COMMANDS,
        sessions::COMMANDS,
    ];
    lists.into_iter().flatten()
}

/// A name of at most 16 bytes, in capital letters, as one number.
fn packed(name: &[u8]) -> Option<u128> {
    let mut bytes = [0; 16];
    bytes.get_mut(..name.len())?.copy_from_slice(name);
    bytes.make_ascii_uppercase();
    Some(u128::from_le_bytes(bytes))
}

/// The command of a name in any case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    COMMANDS.get(&packed(name)?).copied()
}
