//! A client whose tasks run on a thread of its own: a caller that blocks its runtime delays no
//! renewal.

use std::{
    convert::Infallible,
    sync::{Mutex, mpsc},
    thread::{self, ThreadId},
};

use tokio::{runtime::Builder, sync::oneshot};

use super::{EngineHandle, time_limits::LAST_HANDLE_WAIT};
use crate::{config::Config, error::Error, redis::Target};

/// The thread of a client's tasks, which ends after the client and its last handle.
pub(super) struct OwnThread {
    id: ThreadId,
    /// Dropped with the client's last handle.
    in_use: Option<oneshot::Sender<Infallible>>,
    /// Disconnected at the thread's end.
    runs: Mutex<mpsc::Receiver<Infallible>>,
}

impl Drop for OwnThread {
    /// Waits for the thread: a program that returns from `main` would end it before it has sent the
    /// queued releases.
    fn drop(&mut self) {
        self.in_use.take();
        if thread::current().id() != self.id {
            let runs = self.runs.get_mut();
            let _ = runs.map(|runs| runs.recv_timeout(LAST_HANDLE_WAIT));
        }
    }
}

impl EngineHandle {
    /// As [`start`](Self::start), with the tasks on a new thread.
    pub(crate) async fn start_on_own_thread(target: Target, config: Config) -> Result<Self, Error> {
        if !target.is_reached_from_anywhere() {
            return Err(Error::config(
                "a server in memory lives on the runtime of its test: leave out `own_runtime`",
            ));
        }
        let (started, start) = oneshot::channel();
        let work = move || serve(target, config, started);
        thread::Builder::new()
            .name("redisson-lock".into())
            .spawn(work)
            .map_err(|error| {
                Error::config(format!("a client's own thread cannot start: {error}"))
            })?;
        let unstarted = || {
            Err(Error::config(
                "the runtime of the client's own thread cannot start",
            ))
        };
        start.await.unwrap_or_else(|_| unstarted())
    }
}

/// Serves a client on this thread until it is shut down and its last handle is dropped. Timers of
/// calls under way end with the runtime, so the runtime outlives the last handle.
fn serve(
    target: Target,
    config: Config,
    mut started: oneshot::Sender<Result<EngineHandle, Error>>,
) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
        return;
    };
    let (in_use, used) = oneshot::channel();
    let (_runs, runs) = mpsc::channel();
    let thread = OwnThread {
        id: thread::current().id(),
        in_use: Some(in_use),
        runs: Mutex::new(runs),
    };
    runtime.block_on(async {
        let handle = tokio::select! {
            handle = EngineHandle::start_with(target, config, Some(thread)) => handle,
            () = started.closed() => return,
        };
        let engine = handle.as_ref().ok().map(|handle| handle.0.0.clone());
        // If the caller has gone, this drops the handle, and with it the client.
        let _ = started.send(handle);
        if let Some(engine) = engine {
            engine.ended.cancelled().await;
            let _ = used.await;
        }
    });
}
