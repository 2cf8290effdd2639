//! What a lock of one process costs without any server: `tokio::sync::Mutex`, in the same loop. It excludes no other process.

use std::{process::ExitCode, sync::Arc};

use compare::{
    Command, Failure, Peer,
    failure::unsupported,
    round::{self, Task},
    serve,
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

fn main() -> ExitCode {
    serve::<Local>()
}

struct Local;

impl Peer for Local {
    async fn connect(_url: String) -> Result<Self, Failure> {
        Ok(Self)
    }

    async fn answer(&mut self, command: Command) -> Result<Value, Failure> {
        let Command::Contend { tasks, times, .. } = command else {
            return unsupported(
                "no lock on a server: what the tasks of one process share of one lock",
            );
        };
        let lock = Arc::new(Mutex::new(()));
        let tasks = (0..tasks).map(|_| Turn(lock.clone()));
        Ok(json!(round::pairs(tasks, times).await?))
    }
}

struct Turn(Arc<Mutex<()>>);

impl Task for Turn {
    async fn pair(&mut self) -> Result<(), Failure> {
        drop(self.0.lock().await);
        Ok(())
    }
}
