//! A program that answers each line with a line of JSON: the Java one, and this one as it waits in a queue.

use std::{process::Command, time::Duration};

use serde::de::DeserializeOwned;
use testbed::{Child, Silence};

use crate::round::Failure;

/// Beyond what is asked for: a JVM that starts on a busy machine, and 256 connections.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

/// What a program says once it can be asked.
pub const READY: &str = "ready";

pub struct Program(Child);

impl Program {
    pub async fn start(command: Command) -> Result<Self, Failure> {
        let mut program = Self(Child::spawn(command));
        match program.line(ANSWER_WITHIN).await? {
            line if line == READY => Ok(program),
            other => Err(format!("the program says {other:?} instead of {READY}").into()),
        }
    }

    /// Asks for something that takes about as long as `lasting`.
    pub async fn ask<T: DeserializeOwned>(
        &mut self,
        words: &str,
        lasting: Duration,
    ) -> Result<T, Failure> {
        self.0.send_line(words);
        let line = self.line(lasting + ANSWER_WITHIN).await?;
        serde_json::from_str(&line).map_err(|_| format!("the program says {line}").into())
    }

    async fn line(&mut self, within: Duration) -> Result<String, Failure> {
        self.0.next_line(within).await.map_err(|silence| {
            let what = match silence {
                Silence::TimedOut => "does not answer",
                Silence::Ended => "has ended",
            };
            format!("the program {what}:\n{}", self.0.stderr_tail()).into()
        })
    }
}
