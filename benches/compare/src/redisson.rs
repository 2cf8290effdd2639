//! Redisson: one JVM that stays up for the whole run (`benches/compare/redisson`).

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use testbed::{Child, Silence};

use crate::round::{Failure, Round, Times};

pub const VERSION: &str = "4.7.0";
/// Beyond the round itself: a JVM that starts on a busy machine, and 256 connections.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

pub struct Redisson(Child);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("redisson/target")
        .join(VERSION)
}

impl Redisson {
    pub async fn start(url: &str) -> Result<Self, Failure> {
        let folder = folder();
        let jar = folder.join("bench.jar");
        if !jar.is_file() {
            return Err(format!(
                "{} is missing: run tools/build-bench-redisson.sh, or leave Redisson out by --without-java",
                jar.display()
            )
            .into());
        }
        let mut command = Command::new("java");
        command
            .arg("-cp")
            .arg(format!(
                "{}:{}/*",
                jar.display(),
                folder.join("lib").display()
            ))
            .args(["Bench", url]);
        let mut redisson = Self(Child::spawn(command));
        match redisson.line(ANSWER_WITHIN).await? {
            line if line == "ready" => Ok(redisson),
            other => Err(format!("the Java program says {other:?} instead of ready").into()),
        }
    }

    pub async fn pair(&mut self, tasks: usize, times: Times) -> Result<Round, Failure> {
        self.round(&format!("pair {tasks}"), times).await
    }

    pub async fn handoff(&mut self, times: Times) -> Result<Round, Failure> {
        self.round("handoff", times).await
    }

    async fn round(&mut self, words: &str, times: Times) -> Result<Round, Failure> {
        let seconds = |duration: Duration| duration.as_secs_f64();
        let (measured, warm_up) = (seconds(times.measured), seconds(times.warm_up));
        self.0.send_line(&format!("{words} {measured} {warm_up}"));
        let line = self
            .line(times.warm_up + times.measured + ANSWER_WITHIN)
            .await?;
        serde_json::from_str(&line).map_err(|_| format!("the Java program says {line}").into())
    }

    async fn line(&mut self, within: Duration) -> Result<String, Failure> {
        self.0.next_line(within).await.map_err(|silence| {
            let what = match silence {
                Silence::TimedOut => "does not answer",
                Silence::Ended => "has ended",
            };
            format!("the Java program {what}:\n{}", self.0.stderr_tail()).into()
        })
    }
}
