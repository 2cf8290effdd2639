//! A peer's process: it answers each line of standard input with a line of JSON.

use std::process::ExitCode;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    runtime::Builder,
};

use crate::{
    command::Command,
    failure::{Failure, Unsupported, unsupported},
};

/// The line that a program prints when it is ready for commands.
pub const READY: &str = "ready";

/// The number of cores of the smallest machine.
const THREADS: usize = 2;

pub trait Peer: Sized + Send + 'static {
    fn connect(url: String) -> impl Future<Output = Result<Self, Failure>> + Send;

    fn answer(&mut self, command: Command) -> impl Future<Output = Result<Value, Failure>> + Send;
}

/// The whole `main` of a peer.
pub fn serve<P: Peer>() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: <peer> <redis url>, then PROTOCOL.md on standard input");
        return ExitCode::from(2);
    };
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    // A task, so that it runs on the threads of the runtime as its own tasks do.
    match runtime.block_on(runtime.spawn(answer_all::<P>(url))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
        // The panic has printed the reason.
        Err(_) => ExitCode::FAILURE,
    }
}

async fn answer_all<P: Peer>(url: String) -> Result<(), Failure> {
    let mut peer = P::connect(url).await?;
    println!("{READY}");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let answer = match Command::read(&line) {
            Some(command) => peer.answer(command).await,
            None => Err(format!("no such command: {line}").into()),
        };
        println!("{}", answer.unwrap_or_else(|failure| written(&failure)));
    }
    Ok(())
}

fn written(failure: &Failure) -> Value {
    match failure.downcast_ref::<Unsupported>() {
        Some(Unsupported(why)) => json!({ "unsupported": why }),
        None => json!({ "error": failure.to_string() }),
    }
}

/// Reads a line of a peer: an answer, or the reason why there is none.
pub fn read_answer(line: &str) -> Result<Value, Failure> {
    let answer: Value =
        serde_json::from_str(line).map_err(|_| format!("the peer says {line:?}"))?;
    let text = |name| answer.get(name).and_then(Value::as_str);
    if let Some(why) = text("unsupported") {
        return unsupported(why);
    }
    match text("error") {
        Some(what) => Err(what.into()),
        None => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsupported_request_is_distinct_from_a_failed_one() {
        let told = |failure: Failure| {
            read_answer(&written(&failure).to_string()).expect_err("it is no answer")
        };
        let cannot = told(Unsupported("no \"fair\" lock".into()).into());
        assert!(cannot.is::<Unsupported>());
        assert_eq!(cannot.to_string(), "no \"fair\" lock");
        let failed = told("gone".into());
        assert!(!failed.is::<Unsupported>());
        assert_eq!(failed.to_string(), "gone");
        assert_eq!(read_answer("[1, 2]").expect("an answer"), json!([1, 2]));
        assert!(read_answer("ready").is_err());
    }
}
