//! Faults between a client and an in-memory server.

use std::time::Duration;

use bytes::Bytes;

use super::Frame;

/// The fate of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fate {
    /// The delay until the server receives it.
    pub delay: Duration,
    /// The way in which its connection ends with it, if it does.
    pub ending: Option<Ending>,
}

/// The way in which a connection ends with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The command is lost.
    Unsent,
    /// The connection ends at the client at once; the server executes the command when it arrives.
    Unheard,
    /// The server executes the command, and the reply is lost.
    Unanswered,
}

/// The fate of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivering {
    /// It arrives.
    After(Duration),
    /// It is lost, and the client is notified of a loss.
    Missed,
    /// It is lost.
    Never,
}

/// A command that a server has executed.
#[derive(Debug)]
pub struct Executed<'a> {
    /// The number of its connection, in the order of opening.
    pub connection: u64,
    /// The name of the command.
    pub command: &'static str,
    /// The arguments.
    pub args: &'a [Bytes],
    /// The reply, which may be an error.
    pub answer: &'a Frame,
    /// The server's time, in milliseconds.
    pub millis: u64,
}

/// A change of masters, where there are replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MasterChange {
    /// A replica has become the master.
    Promoted {
        /// The keys that differ from the old master's.
        differing: Vec<String>,
    },
    /// The set of replaced masters that serve clients has changed, and is not empty.
    OldMasterServes,
    /// No replaced master serves clients any more.
    OldMasterGone,
}

/// Decides about faults, and observes commands.
pub trait Faults: Send {
    /// The delay until a connection is open.
    fn connecting(&mut self) -> Duration {
        Duration::ZERO
    }

    /// The fate of a client's command.
    fn sending(&mut self, _connection: u64, _command: &'static str) -> Fate {
        Fate::default()
    }

    /// The error that replaces the execution of a command.
    fn refusal(&mut self, _command: &'static str) -> Option<String> {
        None
    }

    /// The reply that replaces the server's reply.
    fn answer(&mut self, _command: &'static str, answer: Frame) -> Frame {
        answer
    }

    /// The delay of a reply.
    fn answering(&mut self, _connection: u64) -> Duration {
        Duration::ZERO
    }

    /// The fate of a message to a subscriber.
    fn delivering(&mut self, _connection: u64) -> Delivering {
        Delivering::After(Duration::ZERO)
    }

    /// Observes an executed command.
    fn executed(&mut self, _executed: &Executed<'_>) {}

    /// Observes a change of masters.
    fn master_changed(&mut self, _change: &MasterChange) {}
}

/// No faults.
#[derive(Debug)]
pub struct Calm;

impl Faults for Calm {}
