//! Tests of the pauses between attempts to connect, and of their log.

use super::*;

#[tokio::test(start_paused = true)]
async fn attempts_become_rare_and_all_purposes_share_them() {
    let server = Arc::new(KnownServer::default());
    let began = Instant::now();
    let mut times = Vec::new();
    for _ in 0..2 {
        let server = server.clone();
        times.push(tokio::spawn(async move {
            let mut times = Vec::new();
            while began.elapsed() < Duration::from_secs(60) {
                server.turn(&Callers::default()).await.end(None);
                times.push(began.elapsed());
            }
            times
        }));
    }
    let mut all = Vec::new();
    for times in times {
        all.extend(times.await.unwrap());
    }
    all.sort();
    assert!(all.len() > 40, "{all:?}");
    let mut later = all[10..].windows(2);
    assert!(
        later.all(|pair| pair[1] - pair[0] >= LONGEST_PAUSE),
        "{all:?}"
    );
    assert!(all[9] < Duration::from_secs(5), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_reached_is_open_to_all_at_once() {
    let server = Arc::new(KnownServer::default());
    for _ in 0..20 {
        server.turn(&Callers::default()).await.end(None);
    }
    assert!(!server.has_turn());
    let waits = tokio::spawn({
        let server = server.clone();
        async move {
            server.turn(&Callers::default()).await.end(None);
            Instant::now()
        }
    });
    tokio::task::yield_now().await;
    let now = Instant::now();
    server.reached();
    assert_eq!(waits.await.unwrap(), now);
}

/// A caller that comes during a long pause, and each that waits, has the server tried soon after it is back.
#[tokio::test(start_paused = true)]
async fn a_waiting_caller_shortens_the_pauses_unless_the_server_was_reached() {
    use ConnectErrorKind::{Closed, Network, NoAnswer};
    let longest = LONGEST_AWAITED_PAUSE * 3 / 2;
    for (failed, is_shortened) in [
        (Some(Network), true),
        (Some(Closed), false),
        (Some(NoAnswer), false),
        (None, false),
    ] {
        let (server, callers) = (KnownServer::default(), Callers::default());
        for _ in 0..20 {
            server.turn(&callers).await.end(failed);
        }
        let began = Instant::now();
        let waits = async {
            tokio::time::sleep(longest).await;
            let waiting = callers.wait();
            let came = Instant::now();
            tokio::time::sleep(Duration::from_secs(10)).await;
            drop(waiting);
            came
        };
        let tries = async {
            let mut times = Vec::new();
            while began.elapsed() < Duration::from_secs(10) {
                server.turn(&callers).await.end(failed);
                times.push(Instant::now());
            }
            times
        };
        let (came, times) = tokio::join!(waits, tries);
        assert_eq!(times[0] == came, is_shortened, "{failed:?}");
        let is_soon = times.windows(2).all(|pair| pair[1] - pair[0] <= longest);
        assert_eq!(is_soon, is_shortened, "{failed:?}");
        let began = Instant::now();
        server.turn(&callers).await.end(failed);
        server.turn(&callers).await.end(failed);
        assert!(began.elapsed() >= LONGEST_PAUSE, "no caller waits any more");
    }
}

/// A provider of credentials that fails for one connection delays no other connection to the same server.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_does_not_reach_the_server_delays_no_other_purpose() {
    let server = KnownServer::default();
    for _ in 0..20 {
        drop(server.turn(&Callers::default()).await);
    }
    let began = Instant::now();
    server.turn(&Callers::default()).await.end(None);
    assert!(began.elapsed() <= FIRST_PAUSE * 2);
    assert_eq!(pause_after(0), Duration::ZERO);
    assert!(pause_after(20) >= LONGEST_PAUSE);
}

#[tokio::test(start_paused = true)]
async fn a_refused_hello_is_repeated_after_a_minute_or_a_failure() {
    let server = KnownServer::default();
    let begins_with = || server.handshakes(Protocol::Auto)[0];
    assert_eq!(begins_with(), Handshake::Hello);
    server.shook_hands(Ok(Handshake::Classic));
    tokio::time::advance(HELLO_AGAIN_AFTER / 2).await;
    assert_eq!(begins_with(), Handshake::Classic);
    // Connections in RESP2 do not put the next HELLO off.
    server.shook_hands(Ok(Handshake::Bare));
    assert_eq!(begins_with(), Handshake::Bare);
    tokio::time::advance(HELLO_AGAIN_AFTER / 2).await;
    assert_eq!(begins_with(), Handshake::Hello);
    server.shook_hands(Ok(Handshake::Classic));
    server.shook_hands(Err(ConnectErrorKind::Network));
    assert_eq!(begins_with(), Handshake::Hello);
    server.shook_hands(Ok(Handshake::Classic));
    server.shook_hands(Ok(Handshake::Hello));
    assert_eq!(begins_with(), Handshake::Hello);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_everything_gets_one_handshake_in_each_attempt() {
    let server = KnownServer::default();
    server.shook_hands(Err(ConnectErrorKind::Network));
    assert!(server.follows_a_close());
    server.shook_hands(Err(ConnectErrorKind::Closed));
    assert!(!server.follows_a_close());
    tokio::time::advance(CLOSE_AGAIN_AFTER / 2).await;
    server.shook_hands(Err(ConnectErrorKind::Closed));
    tokio::time::advance(CLOSE_AGAIN_AFTER / 2).await;
    assert!(server.follows_a_close(), "later closes do not put it off");
    server.shook_hands(Err(ConnectErrorKind::Closed));
    server.shook_hands(Ok(Handshake::Hello));
    assert!(server.follows_a_close());
}

/// twemproxy behind a balancer that closes every connection for a moment: each attempt is a single handshake then.
#[tokio::test(start_paused = true)]
async fn handshake_that_was_accepted_is_tried_first_after_a_peer_that_closed() {
    let server = KnownServer::default();
    server.shook_hands(Ok(Handshake::Bare));
    server.shook_hands(Err(ConnectErrorKind::Closed));
    assert!(!server.follows_a_close());
    assert_eq!(server.handshakes(Protocol::Auto), [Handshake::Bare]);
    server.shook_hands(Err(ConnectErrorKind::Refused));
    let all = Handshake::of(Protocol::Auto);
    assert_eq!(server.handshakes(Protocol::Auto), all);
}

#[tokio::test(start_paused = true)]
async fn connections_that_prove_nothing_are_made_ever_more_seldom() {
    let mut connect_log = ConnectLog::new("scripts", &KnownServers::new());
    let pauses: Vec<_> = (0..20)
        .map(|_| connect_log.lost(&"server", "closed", 0, Duration::ZERO))
        .collect();
    assert!(pauses[0] < Duration::from_millis(20));
    assert!(
        pauses[10..].iter().all(|pause| *pause >= LONGEST_REST),
        "{pauses:?}"
    );
    assert!(connect_log.trouble.cause().is_some());
    connect_log.is_proven(&"server");
    assert!(connect_log.trouble.cause().is_none());
    let pause = connect_log.lost(&"server", "closed", 1, STEADY_AFTER);
    assert_eq!(pause, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn few_connections_that_prove_themselves_and_end_are_replaced_at_once() {
    let mut connect_log = ConnectLog::new("scripts", &KnownServers::new());
    let mut lost = |answers, lasted| {
        connect_log.is_proven(&"server");
        connect_log.lost(&"server", "closed", answers, lasted)
    };
    for steady in [(1, STEADY_AFTER), (STEADY_ANSWERS, Duration::ZERO)] {
        let brief = || lost(STEADY_ANSWERS - 1, Duration::ZERO);
        let pauses: Vec<_> = std::iter::repeat_with(brief).take(20).collect();
        let (at_once, later) = pauses.split_at(MOST_BRIEF as usize);
        assert!(at_once.iter().all(Duration::is_zero), "{pauses:?}");
        assert!(!later[0].is_zero(), "{pauses:?}");
        let longest = later.iter().max().unwrap();
        assert!((LONGEST_BRIEF_REST..=LONGEST_BRIEF_REST.mul_f64(1.5)).contains(longest));
        assert_eq!(lost(steady.0, steady.1), Duration::ZERO);
    }
}
