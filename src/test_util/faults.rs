//! What can go wrong between a client and a server in memory.

use std::time::Duration;

use bytes::Bytes;

use super::Frame;

/// What becomes of a command on its way to the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fate {
    /// How long it takes to get there.
    pub delay: Duration,
    /// How its connection ends with it, if it does.
    pub ending: Option<Ending>,
}

/// How a connection ends with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The command does not get to the server.
    Unsent,
    /// The client finds the connection ended at once; the server executes the command when it gets there.
    Unheard,
    /// The server executes the command, and the answer is lost.
    Unanswered,
}

/// What becomes of a message on its way to a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivering {
    /// It arrives.
    After(Duration),
    /// It is lost, and the receiver is told that something was.
    Missed,
    /// It is lost.
    Never,
}

/// A command that a server has executed.
#[derive(Debug)]
pub struct Executed<'a> {
    /// By which connection it came: they are numbered in the order in which they are opened.
    pub connection: u64,
    /// The name of the command.
    pub command: &'static str,
    /// What follows the name.
    pub args: &'a [Bytes],
    /// The answer, which may be an error.
    pub answer: &'a Frame,
    /// What the server's clock shows, in milliseconds.
    pub millis: u64,
}

/// What becomes of masters, where there are replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MasterChange {
    /// A replica has become the master.
    Promoted {
        /// The keys that are not there as they are on the old master.
        differing: Vec<String>,
    },
    /// A master that has been replaced takes commands.
    OldMasterServes,
    /// No master takes commands any more that has been replaced.
    OldMasterGone,
}

/// Decides what goes wrong, and sees what happens.
pub trait Faults: Send {
    /// How long a connection takes to open.
    fn connecting(&mut self) -> Duration {
        Duration::ZERO
    }

    /// What becomes of a command that a client sends.
    fn sending(&mut self, _connection: u64, _command: &'static str) -> Fate {
        Fate::default()
    }

    /// The error that the server answers instead of executing a command.
    fn refusal(&mut self, _command: &'static str) -> Option<String> {
        None
    }

    /// What a client is answered instead of what the server has answered.
    fn answer(&mut self, _command: &'static str, answer: Frame) -> Frame {
        answer
    }

    /// How long an answer is on its way.
    fn answering(&mut self, _connection: u64) -> Duration {
        Duration::ZERO
    }

    /// What becomes of a message to a subscriber.
    fn delivering(&mut self, _connection: u64) -> Delivering {
        Delivering::After(Duration::ZERO)
    }

    /// Sees a command once it has been executed.
    fn executed(&mut self, _executed: &Executed<'_>) {}

    /// Sees another server become the master, and an old one come back.
    fn master_changed(&mut self, _change: &MasterChange) {}
}

/// Nothing goes wrong.
#[derive(Debug)]
pub struct Calm;

impl Faults for Calm {}
