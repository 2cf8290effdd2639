//! When an open connection logs in anew, under a paused clock.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures_util::stream::{self, Stream};

use super::*;
use crate::{
    redis::{opener::Answer, url},
    transport::{Frame, Pushed},
};

const SECOND: Duration = Duration::from_secs(1);

/// A connection that answers each login in the same way, and notes it.
struct Peer {
    began: Instant,
    answer: Frame,
    logins: Mutex<Vec<(Duration, String)>>,
}

impl Connection for Peer {
    fn send(&self, name: &'static str, args: Vec<Bytes>) -> Answer<'_> {
        let words: Vec<_> = args
            .iter()
            .map(|arg| String::from_utf8_lossy(arg))
            .collect();
        let login = (self.began.elapsed(), format!("{name} {}", words.join(" ")));
        self.logins.lock().unwrap().push(login);
        Box::pin(std::future::ready(Ok(self.answer.clone())))
    }

    fn messages(&self) -> Pin<Box<dyn Stream<Item = Pushed> + Send>> {
        Box::pin(stream::empty())
    }
}

/// The logins within `time` of a connection whose credentials are valid for `first`, and why it ended.
async fn logins(
    time: Duration,
    first: Duration,
    version: Version,
    answer: Frame,
    provider: CredentialsProvider,
) -> (Vec<(Duration, String)>, Option<String>) {
    let peer = Peer {
        began: Instant::now(),
        answer,
        logins: Mutex::default(),
    };
    let reauthentication = Reauthentication {
        provider,
        server: url::parse("redis://127.0.0.1:1").unwrap().server,
        is_sentinel: false,
        wait: SECOND,
        version,
        end: Instant::now() + first,
    };
    let ended = tokio::time::timeout(time, reauthentication.keep(&peer))
        .await
        .ok();
    (peer.logins.into_inner().unwrap(), ended)
}

fn ok() -> Frame {
    Frame::Status("OK".into())
}

/// Credentials that are valid for this time, or stay valid.
fn valid_for(time: Option<Duration>) -> CredentialsProvider {
    CredentialsProvider::new(move |_| async move {
        let credentials = Credentials::new("app", "new");
        Ok::<_, String>(match time {
            Some(time) => credentials.valid_for(time),
            None => credentials,
        })
    })
}

fn times(logins: Vec<(Duration, String)>) -> Vec<f64> {
    let times = logins.iter().map(|(at, _)| at.as_millis() as f64 / 1000.0);
    times.collect()
}

#[tokio::test(start_paused = true)]
async fn a_connection_logs_in_before_the_end_of_its_credentials() {
    let minutes = |number: u64| Duration::from_secs(number * 60);
    for (valid, expected) in [
        (10 * SECOND, [8.0, 16.0]),
        (minutes(15), [840.0, 1680.0]),
        (minutes(1440), [86_340.0, 172_680.0]),
        (Duration::from_millis(300), [0.5, 1.0]),
    ] {
        let time = Duration::from_secs_f64(expected[1] + 0.1);
        let played = logins(time, valid, Version::Resp3, ok(), valid_for(Some(valid)));
        let (logins, ended) = played.await;
        assert_eq!(logins[0].1, "AUTH app new");
        let times = times(logins);
        let late = times.iter().zip(expected).map(|(at, due)| at - due);
        assert_eq!((times.len(), ended), (2, None), "{valid:?}: {times:?}");
        assert!(
            late.into_iter().all(|late| (0.0..0.01).contains(&late)),
            "{valid:?}: {times:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_that_stay_valid_are_not_renewed() {
    let day = Duration::from_secs(86_400);
    for (first, then) in [
        (SECOND, None),
        (SECOND, Some(Duration::MAX)),
        (SECOND, Some(10_000 * day)),
    ] {
        let played = logins(day, first, Version::Resp3, ok(), valid_for(then));
        let (logins, ended) = played.await;
        assert_eq!((logins.len(), ended), (1, None), "{then:?}");
    }
    let played = logins(day, 1_000 * day, Version::Resp3, ok(), valid_for(None));
    assert_eq!(played.await.0, []);
}

/// A clock that is wrong makes every token look old. The server judges them, and the provider is not asked in a storm.
#[tokio::test(start_paused = true)]
async fn credentials_that_have_ended_are_sent_ever_more_seldom() {
    let minute = Duration::from_secs(60);
    let zero = Duration::ZERO;
    // In RESP2, each successor of a connection with subscriptions would end too, once a second.
    let refused = Frame::Error("ERR only (P)SUBSCRIBE allowed in this context".into());
    let played = logins(minute, zero, Version::Resp2, refused, valid_for(Some(zero)));
    let (refused, ended) = played.await;
    assert_eq!((refused.len(), ended), (6, None));
    let played = logins(minute, zero, Version::Resp3, ok(), valid_for(Some(zero)));
    let (logins, ended) = played.await;
    let times = times(logins);
    assert_eq!(ended, None);
    assert!(times.len() == 6 && times[0] >= 1.0, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_are_repeated_and_the_connection_stays_open() {
    let minute = Duration::from_secs(60);
    let refusals = [
        "WRONGPASS invalid username-password pair or user is disabled.",
        "ERR invalid password",
        "LOADING Redis is loading the dataset in memory",
    ];
    for version in [Version::Resp2, Version::Resp3] {
        for refusal in refusals {
            let refused = Frame::Error(refusal.into());
            let played = logins(minute, SECOND, version, refused, valid_for(Some(minute)));
            let (logins, ended) = played.await;
            assert_eq!((logins.len(), ended), (6, None), "{refusal}");
        }
    }
    // The client sends nothing for a user without a password.
    let incomplete = CredentialsProvider::new(|_| async {
        Ok::<_, String>(Credentials {
            username: Some("app".into()),
            password: None,
            end: None,
        })
    });
    let played = logins(minute, SECOND, Version::Resp2, ok(), incomplete);
    assert_eq!(played.await, (Vec::new(), None));
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let failing = CredentialsProvider::new(move |_| {
        let mut asked = count.lock().unwrap();
        *asked += 1;
        let number = *asked;
        async move {
            match number {
                1 => Err("the token service is down"),
                2 => panic!("a defect of the callback"),
                3 => std::future::pending().await,
                _ => Ok(Credentials::new("app", "new")),
            }
        }
    });
    let played = logins(minute, SECOND, Version::Resp3, ok(), failing);
    let (logins, ended) = played.await;
    assert_eq!((logins.len(), ended), (1, None));
    assert_eq!(*asked.lock().unwrap(), 4);
}

/// In RESP2, a connection with subscriptions accepts few commands.
#[tokio::test(start_paused = true)]
async fn a_connection_that_accepts_no_login_ends() {
    for refusal in [
        "ERR Can't execute 'auth': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
        "ERR only (P)SUBSCRIBE / (P)UNSUBSCRIBE / PING / QUIT allowed in this context",
    ] {
        for (version, expected) in [
            (Version::Resp2, Some(ENDS_TO_LOG_IN.to_owned())),
            (Version::Resp3, None),
        ] {
            let refused = Frame::Error(refusal.into());
            let valid = valid_for(Some(SECOND));
            let (_, ended) = logins(10 * SECOND, SECOND, version, refused, valid).await;
            assert_eq!(ended, expected, "{refusal}");
        }
    }
}
