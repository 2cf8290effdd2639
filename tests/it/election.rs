//! Elections: one leader at a time, whose identity ends with its term.

use std::{pin::pin, time::Duration};

use futures_util::StreamExt;
use redisson_lock::{Error, Leader, LockClient, LostReason};
use testbed::{Server, eventually};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

async fn bed() -> (Server, LockClient, LockClient) {
    let server = Server::start().await;
    let connect = async || LockClient::connect(server.url()).await.unwrap();
    let (one, other) = (connect().await, connect().await);
    (server, one, other)
}

fn named(leader: Result<Option<Leader>, Error>) -> Option<(String, i64)> {
    leader
        .unwrap()
        .map(|leader| (leader.identity, leader.token))
}

#[tokio::test]
async fn the_next_candidate_leads_when_the_leader_resigns() {
    let (server, one, other) = bed().await;
    let (here, there) = (one.election("leaders"), other.election("leaders"));
    assert_eq!(here.leader().await, Ok(None));
    let first = here.campaign("host 1, pid 7").await.unwrap();
    let seen = Some(("host 1, pid 7".to_owned(), first.token()));
    assert_eq!(named(there.leader().await), seen);
    assert_eq!(first.identity(), "host 1, pid 7");

    // Candidates of another client and of the same task wait.
    for election in [&here, &there] {
        let candidacy = timeout(Duration::from_millis(300), election.campaign("late"));
        assert!(candidacy.await.is_err());
    }
    let mut second = pin!(there.campaign("host 2"));
    let early = timeout(Duration::from_millis(300), &mut second).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(named(here.leader().await), seen);
    let token = first.token();
    first.resign().await.unwrap();
    let second = timeout(SOON, second).await.unwrap().unwrap();
    assert!(second.token() > token);
    let seen = Some(("host 2".to_owned(), second.token()));
    assert_eq!(named(here.leader().await), seen);
    drop(second);
    assert_eq!(there.leader().await, Ok(None));
    eventually("nothing but the counter is left", SOON, async || {
        server.command::<u32>(&["DBSIZE"]).await == 1
    })
    .await;
}

/// A holder that uses the fenced lock directly is a leader without an identity.
#[tokio::test]
async fn an_identity_is_gone_with_its_term() {
    let (server, one, other) = bed().await;
    let election = one.election("leaders");
    let term = election.campaign("me").await.unwrap();
    assert_eq!(other.fenced_lock("leaders").force_unlock().await, Ok(true));
    assert_eq!(election.leader().await, Ok(None));
    let stranger = other.fenced_lock("leaders").lock().await.unwrap();
    assert_eq!(election.leader().await, Ok(None));
    stranger.unlock().await.unwrap();
    // An identity of an earlier term.
    let words = [
        "HSET",
        "leaders",
        "leader",
        "gone:1 7 ghost",
        "there:1",
        "1",
    ];
    server.command::<()>(&words).await;
    assert_eq!(election.leader().await, Ok(None));
    let lost = timeout(SOON, term.lost()).await.unwrap();
    assert_eq!(lost, LostReason::Gone);
    assert!(matches!(term.resign().await, Err(Error::Lost { .. })));
    for bad in [String::new(), "x".repeat(1025)] {
        let refused = election.campaign(bad).await;
        assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn an_observer_sees_each_leader() {
    let (_server, one, other) = bed().await;
    let mut seen = other.election("leaders").observe();
    let mut next = async || named(timeout(SOON, seen.next()).await.unwrap().unwrap());
    assert_eq!(next().await, None);
    let election = one.election("leaders");
    for identity in ["a", "b"] {
        let term = election.campaign(identity).await.unwrap();
        assert_eq!(next().await, Some((identity.to_owned(), term.token())));
        term.resign().await.unwrap();
        assert_eq!(next().await, None);
    }
}

#[tokio::test]
async fn a_leader_that_is_deposed_stands_again_after_a_pause() {
    let (_server, one, other) = bed().await;
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let pause = Duration::from_millis(300);
    let election = one.election("leaders");
    let mut terms = 0;
    let body = move |leader: Leader| {
        terms += 1;
        sender.send(leader.token).unwrap();
        let (is_last, lock) = (terms == 3, other.fenced_lock("leaders"));
        async move {
            if !is_last {
                lock.force_unlock().await.unwrap();
                std::future::pending::<()>().await;
            }
            "done"
        }
    };
    let began = std::time::Instant::now();
    // The next renewal reports the loss.
    let (leads, me) = (election.clone(), "me");
    let led = tokio::spawn(async move { leads.lead(me, pause, body).await });
    let led = timeout(3 * SOON, led).await.unwrap();
    assert_eq!(led.unwrap(), Ok("done"));
    let mut tokens = Vec::new();
    received.recv_many(&mut tokens, 10).await;
    assert!(began.elapsed() >= 2 * pause);
    assert!(tokens.is_sorted() && tokens.len() == 3, "{tokens:?}");
    assert_eq!(election.leader().await, Ok(None));
    // A body that ends after its term returns its result with an error.
    let deposed = one.fenced_lock("leaders");
    let body = |_| {
        let lock = deposed.clone();
        async move { lock.force_unlock().await.unwrap() }
    };
    let late = election.lead("me", pause, body).await;
    assert_eq!(late.unwrap_err().take_result(), Some(true));
}
