//! One leader among many instances: `cargo run --example leader_election`, in two terminals; end the leader with Ctrl-C.
//!
//! The server is that of `REDIS_URL`, or `redis://127.0.0.1:6379`.

use std::time::Duration;

use redisson_lock::{Election, Error, Leader, LockClient};

/// The pause of a deposed leader, and of a candidate after an outage, before its next campaign.
const PAUSE: Duration = Duration::from_secs(1);

/// The work of the leader. The end of the term stops it at its await point.
async fn lead(leader: Leader) {
    println!("{} leads, term {}", leader.identity, leader.token);
    loop {
        println!("scheduling");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Leads whenever it is elected, until `stop`. Then it resigns, and another instance can lead at once.
async fn serve<F: Future<Output = ()>>(
    election: &Election,
    identity: &str,
    work: impl FnMut(Leader) -> F,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    tokio::select! {
        led = election.lead(identity, PAUSE, work) => led,
        // Dropping the future ends the term.
        () = stop => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let client = LockClient::connect(url).await?;
    let election = client.election("scheduler");
    if let Some(leader) = election.leader().await? {
        println!("{} is the current leader", leader.identity);
    }
    let identity = format!("process {}", std::process::id());
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    serve(&election, &identity, lead, stop).await?;
    client.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use redisson_lock_test::InMemoryRedis;
    use tokio::{sync::oneshot, time::timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_next_leads_when_the_leader_stops() {
        let server = InMemoryRedis::new();
        let elections = [
            server.client().await.unwrap(),
            server.client().await.unwrap(),
        ]
        .map(|client| client.election("scheduler"));
        let [first, second] = elections.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, mut leads) = tokio::sync::mpsc::unbounded_channel();
        let told = tell.clone();
        let leader = tokio::spawn(async move {
            let work = |leader: Leader| {
                told.send(leader.identity).unwrap();
                pending()
            };
            let stop = async { drop(stopped.await) };
            serve(&first, "a", work, stop).await
        });
        assert_eq!(leads.recv().await.as_deref(), Some("a"));
        let next = tokio::spawn(async move {
            let work = |leader: Leader| {
                tell.send(leader.identity).unwrap();
                std::future::ready(())
            };
            serve(&second, "b", work, pending()).await
        });
        let early = timeout(Duration::from_secs(60), leads.recv()).await;
        assert!(early.is_err(), "two leaders: {early:?}");
        stop.send(()).unwrap();
        assert_eq!(leads.recv().await.as_deref(), Some("b"));
        assert_eq!(
            (leader.await.unwrap(), next.await.unwrap()),
            (Ok(()), Ok(()))
        );
        assert_eq!(elections[0].leader().await, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_is_cut_off_stops_and_stands_again() {
        let server = InMemoryRedis::new();
        let election = server.client().await.unwrap().election("scheduler");
        let mut terms = Vec::new();
        let work = |leader: Leader| {
            terms.push(leader.token);
            let (is_first, server) = (terms.len() == 1, server.clone());
            async move {
                if is_first {
                    server.stop();
                    let back = server.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs(40)).await;
                        back.start();
                    });
                    pending().await
                }
            }
        };
        serve(&election, "a", work, pending()).await.unwrap();
        assert_eq!(terms.len(), 2, "{terms:?}");
    }
}
