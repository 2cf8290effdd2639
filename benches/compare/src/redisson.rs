//! Redisson: one JVM that stays up for the whole run (`benches/compare/redisson`).

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    program::Program,
    round::{Failure, Round, Times},
    workload::LockKind,
};

pub const VERSION: &str = "4.7.0";

pub struct Redisson(Program);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("redisson/target")
        .join(VERSION)
}

/// The Java program on the server at `url`.
pub fn command(url: &str) -> Result<Command, Failure> {
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
    let libraries = folder.join("lib");
    command
        .arg("-cp")
        .arg(format!("{}:{}/*", jar.display(), libraries.display()))
        .args(["Bench", url]);
    Ok(command)
}

impl Redisson {
    pub async fn start(url: &str) -> Result<Self, Failure> {
        Ok(Self(Program::start(command(url)?).await?))
    }

    pub async fn pair(
        &mut self,
        kind: LockKind,
        tasks: usize,
        times: Times,
    ) -> Result<Round, Failure> {
        self.round(&format!("pair {} {tasks}", kind.text()), times)
            .await
    }

    pub async fn handoff(&mut self, times: Times) -> Result<Round, Failure> {
        self.round("handoff", times).await
    }

    /// Takes a multi-lock, and says how many microseconds that took.
    pub async fn take(&mut self, names: &[String]) -> Result<f64, Failure> {
        let words = format!("take {}", names.join(" "));
        self.0.ask(&words, Duration::ZERO).await
    }

    /// Releases it: likewise.
    pub async fn release(&mut self) -> Result<f64, Failure> {
        self.0.ask("release", Duration::ZERO).await
    }

    async fn round(&mut self, words: &str, times: Times) -> Result<Round, Failure> {
        let seconds = |duration: Duration| duration.as_secs_f64();
        let (measured, warm_up) = (seconds(times.measured), seconds(times.warm_up));
        let words = format!("{words} {measured} {warm_up}");
        self.0.ask(&words, times.warm_up + times.measured).await
    }
}
