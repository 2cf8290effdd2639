//! At most two uploads at a time, in all processes together, by threads without async: `cargo run --example blocking_limit --features
//! blocking`, in two terminals. Kill one of them: its permits come back within a lease, 30 s by default.
//!
//! The server is that of `REDIS_URL`, or `redis://127.0.0.1:6379`.

use std::{thread, time::Duration};

use redisson_lock::{
    Error,
    blocking::{LockClient, PermitExpirableSemaphore},
};

/// The semaphore of all uploads. Its permits are renewed, so a crash costs none.
fn uploads(locks: &LockClient) -> Result<PermitExpirableSemaphore, Error> {
    let uploads = locks.permit_expirable_semaphore("uploads").renewed();
    // The first process sets the number. `set_permits` would change it.
    uploads.try_set_permits(2)?;
    Ok(uploads)
}

/// Sends the parts of a file under a permit. Returns the number of parts that it has sent.
fn upload(
    uploads: &PermitExpirableSemaphore,
    wait: Duration,
    parts: &[&str],
    send: impl Fn(&str),
) -> Result<usize, Error> {
    let Some(permit) = uploads.try_acquire_for(wait)? else {
        return Ok(0);
    };
    let mut sent = 0;
    for part in parts {
        // After an outage of Redis, another process may have the permit.
        if permit.is_lost() {
            break;
        }
        send(part);
        sent += 1;
    }
    permit.release()?;
    Ok(sent)
}

fn main() -> Result<(), Error> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let locks = LockClient::connect(url)?;
    let uploads = uploads(&locks)?;
    let run = |file: u32| {
        let send = |part: &str| {
            println!("file {file}: {part}");
            thread::sleep(Duration::from_secs(1));
        };
        upload(
            &uploads,
            Duration::from_secs(60),
            &["head", "body", "end"],
            send,
        )
    };
    thread::scope(|scope| {
        let files: Vec<_> = (1..=6).map(|file| scope.spawn(move || run(file))).collect();
        let sent = files.into_iter().map(|file| file.join().unwrap());
        let sent = sent.sum::<Result<usize, Error>>()?;
        println!("{sent} parts were sent from here");
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use testbed::Server;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(flavor = "multi_thread")]
    async fn two_files_at_a_time_are_sent_by_all_processes() {
        let server = Server::start().await;
        let url = server.url();
        let played = tokio::task::spawn_blocking(move || {
            let processes = [&url, &url].map(|url| LockClient::connect(url).unwrap());
            let (sending, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let send = |_: &str| {
                most.fetch_max(sending.fetch_add(1, SeqCst) + 1, SeqCst);
                thread::sleep(Duration::from_millis(2));
                sending.fetch_sub(1, SeqCst);
            };
            let sent: usize = thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|thread| {
                        let uploads = uploads(&processes[thread % 2]).unwrap();
                        scope.spawn(move || upload(&uploads, LONG, &["a", "b", "c"], send).unwrap())
                    })
                    .collect();
                threads.into_iter().map(|one| one.join().unwrap()).sum()
            });
            assert_eq!((sent, most.into_inner()), (24, 2));
        });
        played.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_permits_of_a_killed_process_come_back() {
        let server = Server::start().await;
        let url = server.url();
        let played = tokio::task::spawn_blocking(move || {
            let [killed, next] = [&url, &url].map(|url| LockClient::connect(url).unwrap());
            let lease = Duration::from_millis(500);
            let dies = uploads(&killed).unwrap().with_lease(lease);
            for permit in dies.acquire_many(2).unwrap() {
                // As a killed process: no release, and no renewal any more.
                permit.leak();
            }
            let uploads = uploads(&next).unwrap();
            assert_eq!(upload(&uploads, Duration::ZERO, &["a"], |_| {}), Ok(0));
            assert_eq!(upload(&uploads, LONG, &["a"], |_| {}), Ok(1));
            assert_eq!(uploads.acquired_permits(), Ok(0));
        });
        played.await.unwrap();
    }
}
