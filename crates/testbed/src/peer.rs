//! A service with locks in its own process, with a protocol of lines.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::process::Process;

const READY_WITHIN: Duration = Duration::from_secs(60);
/// Longer than any request takes on a busy machine: a limit only against tests that never end.
const ANSWER_WITHIN: Duration = Duration::from_secs(150);
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(500);
const STDERR_LINES: usize = 50;

/// A process that acquires and releases locks on request. Its protocol is that of the Java peer (`Peer.java`), in any language:
///
/// ```text
/// first line:  ready <version> <client uuid>
/// request:     <id> <label> <verb> [args...]      one space between tokens, tokens percent-encoded
/// response:    <id> ok [values...]
///              <id> err <class> <message; - if there is none>
/// ```
///
/// The requests of one label run in order; different labels run concurrently. Tests can share it, because it is not bound to a
/// runtime. Dropping it kills it by its pid and reaps it. The end of its input ends it too.
#[derive(Debug)]
pub struct Peer {
    name: String,
    version: String,
    client_id: String,
    process: Mutex<Process>,
    input: Mutex<ChildStdin>,
    answers: Arc<Mutex<Answers>>,
    errors: Arc<LastWords>,
}

/// The answer to a request.
pub type Answer = Result<Vec<String>, Refused>;

/// A request that the peer refused, or that its end left unanswered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The kind of error, in the peer's own words; [`Refused::ENDED`] when the process ended first.
    pub class: String,
    /// The error's message.
    pub message: String,
}

impl Refused {
    /// The class of a request that the peer's end left unanswered.
    pub const ENDED: &str = "Ended";
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

/// The waiting callers, by request id; `None` after the end of the peer.
#[derive(Debug)]
struct Answers {
    next_id: u64,
    waiting: Option<HashMap<u64, oneshot::Sender<Answer>>>,
}

impl Peer {
    /// Starts `command` and waits until it is ready. Otherwise panics with its standard error.
    pub async fn start(name: &str, mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command)
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let child = process.child();
        let input = child.stdin.take().expect("stdin is piped");
        let output = child.stdout.take().expect("stdout is piped");
        let errors = Arc::new(LastWords::of(child.stderr.take().expect("stderr is piped")));
        let answers = Arc::new(Mutex::new(Answers {
            next_id: 1,
            waiting: Some(HashMap::new()),
        }));
        let (greet, greeting) = oneshot::channel();
        let book = Arc::clone(&answers);
        // A thread, not a task: the peer serves every runtime of the process.
        std::thread::spawn(move || listen(output, greet, &book));
        let Ok(Ok((version, client_id))) = timeout(READY_WITHIN, greeting).await else {
            panic!("{name} does not become ready:\n{}", errors.tail().await);
        };
        Self {
            name: name.to_owned(),
            version,
            client_id,
            process: Mutex::new(process),
            input: Mutex::new(input),
            answers,
            errors,
        }
    }

    /// The name of the peer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of its lock library.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The client id in its owners.
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        lock(&self.process).pid()
    }

    /// Sends a request for `label` at once. The future is the answer, and panics without one.
    pub fn ask(&self, label: &str, words: &[&str]) -> impl Future<Output = Answer> + Send + use<> {
        let (sender, answer) = oneshot::channel();
        let request: Vec<String> = [&[label], words].concat().into_iter().map(encode).collect();
        let request = request.join(" ");
        if let Some(id) = lock(&self.answers).expect_one(sender) {
            // A failed write means that the process has ended, which the answer reports.
            let _ = lock(&self.input).write_all(format!("{id} {request}\n").as_bytes());
        }
        let errors = Arc::clone(&self.errors);
        let name = self.name.clone();
        async move {
            match timeout(ANSWER_WITHIN, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(Refused {
                    class: Refused::ENDED.to_owned(),
                    message: format!("{name} has ended:\n{}", errors.tail().await),
                }),
                Err(_) => panic!(
                    "{name} has not answered `{request}` within {ANSWER_WITHIN:?}:\n{}",
                    errors.tail().await
                ),
            }
        }
    }

    /// Kills the process (SIGKILL): it releases nothing. Pending requests end with [`Refused::ENDED`].
    pub fn kill(&self) {
        lock(&self.process).kill();
    }
}

impl Answers {
    /// The id for the next request, unless the peer has ended.
    fn expect_one(&mut self, sender: oneshot::Sender<Answer>) -> Option<u64> {
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.as_mut()?.insert(id, sender);
        Some(id)
    }
}

type Greeting = oneshot::Sender<(String, String)>;

/// Delivers the peer's answers until it ends.
fn listen(output: impl Read, greet: Greeting, answers: &Mutex<Answers>) {
    let mut greet = Some(greet);
    for line in lines_of(output) {
        let words: Vec<String> = line.split(' ').map(decode).collect();
        match &words[..] {
            // Earlier lines are a test harness's.
            [ready, version, client_id] if ready == "ready" => {
                if let Some(greet) = greet.take() {
                    let _ = greet.send((version.clone(), client_id.clone()));
                }
            }
            [id, rest @ ..] => {
                let known = |id| lock(answers).waiting.as_mut()?.remove(&id);
                if let (Some(sender), Some(answer)) = (id.parse().ok().and_then(known), read(rest))
                {
                    let _ = sender.send(answer);
                }
            }
            [] => {}
        }
    }
    lock(answers).waiting = None;
}

fn read(words: &[String]) -> Option<Answer> {
    match words {
        [ok, values @ ..] if ok == "ok" => Some(Ok(values.to_vec())),
        [err, class, message] if err == "err" => Some(Err(Refused {
            class: class.clone(),
            message: message.clone(),
        })),
        _ => None,
    }
}

/// The end of what a process writes to its standard error.
#[derive(Debug)]
struct LastWords {
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: JoinHandle<()>,
}

impl LastWords {
    fn of(errors: impl Read + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let tail = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for line in lines_of(errors) {
                let mut tail = lock(&tail);
                tail.push_back(line);
                if tail.len() > STDERR_LINES {
                    tail.pop_front();
                }
            }
        });
        Self { lines, reader }
    }

    /// The last lines; complete if the process has ended.
    async fn tail(&self) -> String {
        let start = Instant::now();
        while !self.reader.is_finished() && start.elapsed() < LAST_WORDS_WITHIN {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        lock(&self.lines)
            .iter()
            .flat_map(|line| [line, "\n"])
            .collect()
    }
}

fn lines_of(stream: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(stream).split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(line.trim_ascii_end()).into_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Encodes a token: without spaces, line ends and non-ASCII characters.
pub fn encode(token: &str) -> String {
    let mut text = String::with_capacity(token.len());
    for byte in token.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'%' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Decodes a token.
pub fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| first == b'%');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each request with its own words, the first one last.
    const ECHO: &str = "echo noise; echo ready 1.2 an-id; read first; while read line; do
        set -- $line; id=$1; shift
        case $2 in fail) echo \"$id err Why just%20so\";; end) exit;; *) echo \"$id ok $*\";; esac
        [ -z \"$first\" ] || { echo \"${first%% *} ok late\"; first=; }
        done";

    async fn echo() -> Peer {
        let mut command = Command::new("sh");
        command.args(["-c", ECHO]);
        Peer::start("echo", command).await
    }

    #[tokio::test]
    async fn answers_find_their_requests() {
        let peer = echo().await;
        assert_eq!((peer.version(), peer.client_id()), ("1.2", "an-id"));
        let late = peer.ask("a", &["wait"]);
        let values = peer.ask("b", &["say", "two words, 100 %"]).await;
        assert_eq!(values.unwrap(), ["b", "say", "two words, 100 %"]);
        assert_eq!(late.await.unwrap(), ["late"]);
        let refused = peer.ask("c", &["fail"]).await.unwrap_err();
        assert_eq!(refused.to_string(), "Why: just so");
    }

    #[tokio::test]
    async fn the_end_of_a_peer_answers_all_requests() {
        let peer = echo().await;
        let never = peer.ask("a", &["wait"]);
        let end = peer.ask("b", &["end"]);
        assert_eq!(never.await.unwrap_err().class, Refused::ENDED);
        assert_eq!(end.await.unwrap_err().class, Refused::ENDED);
        let after = peer.ask("c", &["say"]).await;
        assert_eq!(after.unwrap_err().class, Refused::ENDED);
    }

    #[test]
    fn tokens_travel() {
        for token in ["plain:{a}-1", "Gebühr 42 🔒", "100 %", "a\nb", "%41", ""] {
            let text = encode(token);
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
            assert_eq!(decode(&text), token);
        }
        assert_eq!(decode("50%"), "50%");
        assert_eq!(decode("%zz"), "%zz");
    }
}
