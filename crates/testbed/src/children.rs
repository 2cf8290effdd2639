//! Child processes with a protocol of lines.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::process::Process;

const STDERR_LINES: usize = 50;
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(500);

/// The reason why no line arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The time limit ended first.
    TimedOut,
    /// The child has closed its standard output, most likely by ending.
    Ended,
}

/// A child process with a protocol of lines. Dropping it kills it by its pid and reaps it.
#[derive(Debug)]
pub struct Child {
    process: Process,
    name: String,
    input: Option<ChildStdin>,
    lines: UnboundedReceiver<String>,
    stderr: Arc<Mutex<VecDeque<String>>>,
    stderr_reader: JoinHandle<()>,
}

impl Child {
    /// Starts `command` with piped standard streams. Panics if it cannot start.
    pub fn spawn(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let name = command.get_program().to_string_lossy().into_owned();
        let mut process = Process::spawn(&mut command)
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let input = process.child().stdin.take();
        let output = process.child().stdout.take().expect("stdout is piped");
        let errors = process.child().stderr.take().expect("stderr is piped");
        let (sender, lines) = unbounded_channel();
        let stderr = Arc::default();
        // Threads, not tasks: a test that blocks its runtime must not block the child on a full pipe.
        std::thread::spawn(move || collect(BufReader::new(output), &sender));
        let tail = Arc::clone(&stderr);
        let stderr_reader = std::thread::spawn(move || keep_tail(BufReader::new(errors), &tail));
        Self {
            process,
            name,
            input,
            lines,
            stderr,
            stderr_reader,
        }
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Writes one line to the child's standard input. Panics if the child no longer reads.
    pub fn send_line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the child's input is open");
        // One write, so that the child never reads part of a line.
        let written = input.write_all(format!("{line}\n").as_bytes());
        if let Err(error) = written {
            panic!(
                "{} does not take `{line}`: {error}\n{}",
                self.name,
                self.stderr_tail()
            );
        }
    }

    /// Closes the child's standard input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// The next line of the child's standard output, within `limit`.
    pub async fn next_line(&mut self, limit: Duration) -> Result<String, Silence> {
        match tokio::time::timeout(limit, self.lines.recv()).await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err(Silence::Ended),
            Err(_) => Err(Silence::TimedOut),
        }
    }

    /// The next line. Panics with the end of the child's standard error if no line arrives within `limit`.
    pub async fn line(&mut self, limit: Duration) -> String {
        match self.next_line(limit).await {
            Ok(line) => line,
            Err(silence) => {
                self.last_words().await;
                panic!(
                    "no line from {} ({silence:?}, {limit:?}):\n{}",
                    self.name,
                    self.stderr_tail()
                )
            }
        }
    }

    /// Sends a line and returns the next line of the child. Panics like [`line`](Self::line).
    pub async fn ask(&mut self, line: &str, limit: Duration) -> String {
        self.send_line(line);
        self.line(limit).await
    }

    /// The last lines of the child's standard error.
    pub fn stderr_tail(&self) -> String {
        let lines = lock(&self.stderr);
        lines.iter().flat_map(|line| [line, "\n"]).collect()
    }

    /// Stops the child (SIGSTOP). Like [`kill`](Self::kill), it does not affect grandchildren: let a shell `exec`.
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Continues a stopped child (SIGCONT).
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// Kills the child (SIGKILL) and reaps it. Earlier lines can still be read.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits until the child ends by itself, for `limit` at most.
    pub async fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            let status = self.process.ended();
            if status.is_some() || start.elapsed() > limit {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for the rest of an ended child's standard error, where the reason comes last.
    async fn last_words(&self) {
        let start = Instant::now();
        while !self.stderr_reader.is_finished() && start.elapsed() < LAST_WORDS_WITHIN {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn collect(output: impl BufRead, lines: &UnboundedSender<String>) {
    for line in lines_of(output) {
        if lines.send(line).is_err() {
            return;
        }
    }
}

fn keep_tail(errors: impl BufRead, tail: &Mutex<VecDeque<String>>) {
    for line in lines_of(errors) {
        let mut tail = lock(tail);
        if tail.len() == STDERR_LINES {
            tail.pop_front();
        }
        tail.push_back(line);
    }
}

/// Not `BufRead::lines`: it ends at the first line that is not UTF-8, and the child would block on a full pipe.
fn lines_of(stream: impl BufRead) -> impl Iterator<Item = String> {
    let lines = stream.split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(line.trim_ascii_end()).into_owned())
}

fn lock(tail: &Mutex<VecDeque<String>>) -> MutexGuard<'_, VecDeque<String>> {
    tail.lock().unwrap_or_else(PoisonError::into_inner)
}
