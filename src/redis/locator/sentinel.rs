//! What sentinels say about a master and about each other.

use super::master_view::Report;
use crate::{
    hash::HashMap,
    redis::{endpoint::Address, frame, open_connection},
    transport::{Connection, Frame},
};

/// Another sentinel that a sentinel mentions.
pub(super) struct PeerSentinel {
    pub(super) id: String,
    pub(super) address: Address,
}

/// Sends one `SENTINEL` command. The answer may be an error frame.
pub(super) async fn command(
    connection: &dyn Connection,
    word: &'static str,
    service: Option<&str>,
) -> Result<Frame, String> {
    let words: Vec<&str> = std::iter::once(word).chain(service).collect();
    open_connection::command(connection, "SENTINEL", &words).await
}

/// Combines the answers of `MASTER` and `GET-MASTER-ADDR-BY-NAME`.
pub(super) fn report(sentinel: String, master: &Frame, address: &Frame) -> Report {
    let fields = frame::map(master);
    let number = |name: &str| fields.get(name).and_then(|number| number.parse().ok());
    let flags = fields.get("flags").map_or("", String::as_str);
    Report {
        sentinel,
        master: address_at(address),
        epoch: number("config-epoch").unwrap_or(0),
        sentinels: number("num-other-sentinels").unwrap_or(0).saturating_add(1) as usize,
        replicas: number("num-slaves").unwrap_or(0) as usize,
        unsettled: flags.contains("o_down") || flags.contains("failover_in_progress"),
    }
}

fn address_at(answer: &Frame) -> Option<Address> {
    let port = frame::text_at(answer, 1)?.parse().ok()?;
    Some((frame::text_at(answer, 0)?, port))
}

/// A sentinel in the answer to `SENTINELS`.
pub(super) fn peer(fields: &HashMap<String, String>) -> Option<PeerSentinel> {
    Some(PeerSentinel {
        id: fields.get("runid")?.clone(),
        address: (fields.get("ip")?.clone(), fields.get("port")?.parse().ok()?),
    })
}

/// For the fuzz target.
#[cfg(test)]
pub(in crate::redis) mod fuzz {
    use super::{Frame, frame, peer, report};
    use crate::redis::connect_advice::refusal;

    pub(in crate::redis) fn read(answer: &Frame) {
        let reported = report("sentinel".into(), answer, answer);
        let answers = super::super::master_view::Answers {
            reports: vec![reported.clone(), reported],
            roles: Vec::new(),
        };
        let now = tokio::time::Instant::now();
        let _ = std::hint::black_box((answers.majority(), answers.elect(now, None)));
        std::hint::black_box(frame::maps(answer).iter().filter_map(peer).count());
        std::hint::black_box(refusal(answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::Error, redis::connect_advice::refusal};

    fn list(words: &[&str]) -> Frame {
        let text = |word: &&str| Frame::Text(word.as_bytes().to_vec().into());
        Frame::List(words.iter().map(text).collect())
    }

    /// The answers of a sentinel that leads a failover, as observed for three seconds.
    #[test]
    fn while_the_replicas_are_moved_the_new_master_is_named_already() {
        let fields = "ip 127.0.0.1 port 7000 flags master,failover_in_progress config-epoch 1 num-other-sentinels 2 \
                      num-slaves 2";
        let fields: Vec<_> = fields.split_whitespace().collect();
        let reported = report("1".into(), &list(&fields), &list(&["127.0.0.1", "7002"]));
        let expected = Report {
            sentinel: "1".into(),
            master: Some(("127.0.0.1".into(), 7002)),
            epoch: 1,
            sentinels: 3,
            replicas: 2,
            unsettled: true,
        };
        assert_eq!(reported, expected);
        let unknown = report("1".into(), &Frame::Null, &Frame::Null);
        assert_eq!((unknown.master, unknown.sentinels), (None, 1));
    }

    #[test]
    fn a_node_that_refuses_the_user_is_a_configuration_error() {
        let error = |text: &str| Frame::Error(text.into());
        assert!(matches!(
            refusal(&error("NOAUTH log in")),
            Some(Error::Config { .. })
        ));
        assert!(matches!(
            refusal(&error("NOPERM no")),
            Some(Error::Config { .. })
        ));
        assert!(refusal(&error("ERR No such master with that name")).is_none());
        assert!(refusal(&Frame::Null).is_none());
    }
}
