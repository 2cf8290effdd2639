//! Checks which commands the peer refuses, where a proxy, a service or `rename-command` leaves some out.

use redisson_lock::probe::{MAY_PUBLISH, Probe, SetUp, is_transient};

use super::{Findings, Level};
use crate::{
    Failure,
    answers::{error, text},
    entry::prefixed,
};

/// What stands for the name of the lock, and for its channel.
const NAME: &str = "<name>";
const CHANNEL: &str = "<channel>";

const ENDPOINT: &str =
    "Add ?endpoint=server to the URL if one server answers there; ?endpoint=proxy behind a proxy.";
pub const RENAMED: &str =
    "Remove rename-command at the server, or reach the server without the proxy.";

/// A command as the client sends it, and the cost of its lack.
struct Question {
    command: &'static str,
    sent: &'static str,
    words: &'static [&'static str],
    level: Level,
    costs: &'static str,
    to_do: &'static str,
}

const QUESTIONS: [Question; 9] = [
    Question {
        command: "HELLO",
        sent: "HELLO",
        words: &["3"],
        level: Level::Note,
        costs: "the client speaks RESP2, in which all kinds of lock work",
        to_do: "Add ?protocol=resp2 to the URL: each connection then begins without this question.",
    },
    Question {
        command: "EVALSHA",
        sent: "EVALSHA",
        words: &["0000000000000000000000000000000000000000", "1", NAME],
        level: Level::Note,
        costs: "the client sends the text of scripts by EVAL, which is slower",
        to_do: RENAMED,
    },
    Question {
        command: "WAIT",
        sent: "WAIT",
        words: &["0", "1"],
        level: Level::Warning,
        costs: "Durability::Auto goes on without replicas, and other durabilities but Local fail",
        to_do: RENAMED,
    },
    Question {
        command: "CLIENT INFO",
        sent: "CLIENT",
        words: &["INFO"],
        level: Level::Note,
        costs: "a single server cannot prove that it is one: each name travels alone; the server does not drop an old connection \
                before the client repeats its calls",
        to_do: ENDPOINT,
    },
    Question {
        command: "CLIENT KILL",
        sent: "CLIENT",
        words: &["KILL", "ID", "9223372036854775807", "ADDR", "0.0.0.0:0"],
        level: Level::Note,
        costs: "the server does not drop an old connection before the client repeats its calls",
        to_do: RENAMED,
    },
    Question {
        command: "CLIENT SETNAME",
        sent: "CLIENT",
        words: &["SETNAME", "rlock-doctor"],
        level: Level::Note,
        costs: "CLIENT LIST shows connections without a name",
        to_do: RENAMED,
    },
    Question {
        command: "INFO",
        sent: "INFO",
        words: &[],
        level: Level::Note,
        costs: "the client cannot warn of a memory policy that evicts locks, and redis-replicated:// does not work",
        to_do: RENAMED,
    },
    Question {
        command: "PUBLISH in scripts",
        sent: "EVAL",
        words: &[MAY_PUBLISH, "1", NAME, "PUBLISH", CHANNEL],
        level: Level::Problem,
        costs: "releases would fail: acquisitions fail first and say so",
        to_do: RENAMED,
    },
    Question {
        command: "SUBSCRIBE",
        sent: "SUBSCRIBE",
        words: &[CHANNEL],
        level: Level::Warning,
        costs: "no message wakes a waiter: waiters ask every max_poll_interval",
        to_do: RENAMED,
    },
];

impl Question {
    /// Whether a set-up needs the command. On a cluster, messages may use shards: the check of messages tries them.
    fn is_about(&self, set_up: &SetUp) -> bool {
        *set_up != SetUp::Cluster || !self.words.contains(&CHANNEL)
    }

    /// The severity of its lack. A single server waits for no replicas unless the client demands them.
    fn level(&self, set_up: &SetUp) -> Level {
        match (self.command, set_up) {
            ("WAIT", SetUp::Single) => Level::Note,
            _ => self.level,
        }
    }

    /// The peer's words if it refuses the command. A peer may close the connection instead.
    async fn refusal(&self, probe: &Probe, name: &str) -> Result<Option<String>, Failure> {
        let words = self.words.iter().map(|word| match *word {
            NAME => name.to_owned(),
            CHANNEL => prefixed("redisson_lock__channel", name),
            word => word.to_owned(),
        });
        let words = Vec::from_iter(words);
        let answer = match probe.master().await?.ask(self.sent, &words).await {
            Err(error) => return Ok(Some(error.to_string())),
            Ok(answer) => answer,
        };
        let said = match error(&answer) {
            Some(message) => Some(message.to_owned()),
            None if self.sent == "EVAL" => text(&answer).and_then(|said| {
                Some(said.strip_prefix("NO ")?.escape_debug().take(200).collect())
            }),
            None => None,
        };
        // Without the right to EVALSHA, the client does not fall back to EVAL: the check of rights says so.
        let is_of_rights = |said: &str| self.sent == "EVALSHA" && said.starts_with("NOPERM");
        Ok(said.filter(|said| !is_no_refusal(said) && !is_of_rights(said)))
    }
}

/// Whether the server says that a script is unknown, that it serves the command soon or elsewhere, or that the user lacks a channel:
/// the check of rights knows which kinds use it.
fn is_no_refusal(said: &str) -> bool {
    let is_of_channel = said.starts_with("NOPERM") && said.contains("channel");
    said.starts_with("NOSCRIPT") || is_transient(said) || is_of_channel
}

/// Asks each question on a connection of its own, because a peer may close it.
pub async fn look(probe: &Probe, name: &str, findings: &mut Findings) -> Result<(), Failure> {
    let mut all = true;
    let set_up = probe.set_up();
    let questions = QUESTIONS.iter();
    for question in questions.filter(|question| question.is_about(set_up)) {
        let Some(said) = question.refusal(probe, name).await? else {
            continue;
        };
        all = false;
        let says = format!(
            "{} is refused ({said}): {}",
            question.command, question.costs
        );
        findings.push(
            question.level(set_up),
            "commands",
            says,
            Some(question.to_do.to_owned()),
        );
    }
    if all {
        findings.fine("commands", "none that the client sends is refused");
    }
    Ok(())
}
