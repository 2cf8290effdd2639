use std::time::Duration;

use super::*;

fn at(host: &str) -> Address {
    (host.to_owned(), 6379)
}

/// One of three sentinels.
fn report(sentinel: &str, master: &str, epoch: u64) -> Report {
    Report {
        sentinel: sentinel.into(),
        master: (!master.is_empty()).then(|| at(master)),
        epoch,
        sentinels: 3,
        replicas: 2,
        unsettled: false,
    }
}

fn reports(reports: &[(&str, &str, u64)]) -> Answers {
    let reports = reports
        .iter()
        .map(|(id, master, epoch)| report(id, master, *epoch));
    Answers {
        reports: reports.collect(),
        roles: Vec::new(),
    }
}

fn master(address: &str, history: &str, before: &str) -> Role {
    Role {
        address: at(address),
        run_id: Some(format!("{address} {history}")),
        is_master: true,
        connected: 0,
        offset: 7,
        history: history.into(),
        before: (!before.is_empty()).then(|| before.to_owned()),
    }
}

fn replica(address: &str, history: &str) -> Role {
    Role {
        is_master: false,
        ..master(address, history, "")
    }
}

fn roles(roles: &[Role]) -> Answers {
    Answers {
        reports: Vec::new(),
        roles: roles.to_vec(),
    }
}

fn believed(answers: &Answers, before: Option<&MasterView>) -> Result<Address, Undecided> {
    let view = answers.elect(Instant::now(), before);
    view.map(|view| view.master)
}

#[test]
fn the_latest_failover_counts() {
    let answers = reports(&[("1", "old", 4), ("2", "new", 5), ("3", "old", 4)]);
    assert_eq!(believed(&answers, None), Ok(at("new")));
    assert!(answers.majority() && answers.unsettled());
    let settled = reports(&[("1", "new", 5), ("2", "new", 5)]);
    assert!(settled.majority() && !settled.unsettled());
}

#[test]
fn sentinels_at_one_epoch_elect_by_majority_and_a_tie_keeps_the_present_master() {
    let answers = reports(&[("1", "a", 1), ("2", "b", 1), ("3", "b", 1)]);
    assert_eq!(believed(&answers, None), Ok(at("b")));
    let tied = reports(&[("1", "a", 1), ("2", "b", 1)]);
    let a = reports(&[("1", "a", 1)])
        .elect(Instant::now(), None)
        .unwrap();
    let b = reports(&[("1", "b", 1)])
        .elect(Instant::now(), None)
        .unwrap();
    assert_eq!(believed(&tied, Some(&a)), Ok(at("a")));
    assert_eq!(believed(&tied, Some(&b)), Ok(at("b")));
}

#[test]
fn a_sentinel_with_two_addresses_is_one() {
    let answers = reports(&[("1", "a", 1), ("1", "a", 1)]);
    assert!(!answers.majority());
    let answers = reports(&[("1", "a", 1), ("1", "a", 1), ("2", "b", 1), ("3", "b", 1)]);
    assert_eq!(believed(&answers, None), Ok(at("b")));
}

/// P-T5: a sentinel that was away while the rest promoted another master.
#[test]
fn an_earlier_failover_is_not_believed_again() {
    let before = reports(&[("1", "new", 5)])
        .elect(Instant::now(), None)
        .unwrap();
    let stale = reports(&[("2", "old", 4)]);
    assert_eq!(believed(&stale, Some(&before)), Err(Undecided::Outdated));
    let most = reports(&[("2", "old", 4), ("3", "old", 4)]);
    assert_eq!(believed(&most, Some(&before)), Err(Undecided::Outdated));
    // Sentinels that were set up anew count epochs from zero: in the end, their majority is right.
    let later = before.asked + FAILOVER_FORGOTTEN_AFTER;
    assert!(most.elect(later, Some(&before)).is_ok());
    assert_eq!(stale.elect(later, Some(&before)), Err(Undecided::Outdated));
}

#[test]
fn unknown_verdicts() {
    assert_eq!(
        believed(&Answers::default(), None),
        Err(Undecided::NoAnswer)
    );
    let unknown = reports(&[("1", "", 0), ("2", "", 0)]);
    assert_eq!(believed(&unknown, None), Err(Undecided::NoMaster));
    let replicas = roles(&[replica("a", "x"), replica("b", "x")]);
    assert_eq!(believed(&replicas, None), Err(Undecided::NoMaster));
    assert!(replicas.unsettled());
}

/// P-T5, where there are no sentinels.
#[test]
fn the_master_that_was_promoted_later_is_elected() {
    let old = master("old", "x", "");
    let new = master("new", "y", "x");
    for order in [[old.clone(), new.clone()], [new.clone(), old.clone()]] {
        assert_eq!(believed(&roles(&order), None), Ok(at("new")));
    }
    // Even if more nodes still follow the old master.
    let answers = roles(&[old, new, replica("a", "x"), replica("b", "x")]);
    assert_eq!(believed(&answers, None), Ok(at("new")));
    assert!(answers.unsettled());
}

/// P-T5: the resumed old master and a replica answer, and the new master misses the question.
#[test]
fn a_resumed_master_is_not_believed_while_its_successor_is_silent() {
    let (old, new) = (master("old", "x", ""), master("new", "y", "x"));
    let alone = || roles(std::slice::from_ref(&old));
    let outdated = || Err(Undecided::Outdated);
    // The client remembers the ancestry of the new master.
    let view = roles(&[new, replica("a", "y")])
        .elect(Instant::now(), None)
        .unwrap();
    let silent = roles(&[old.clone(), replica("a", "y")]);
    assert_eq!(believed(&silent, Some(&view)), outdated());
    // Every later failover and restart keeps it.
    let restarted = roles(&[master("new", "z", "")])
        .elect(Instant::now(), Some(&view))
        .unwrap();
    let latest = roles(&[master("latest", "w", "z")])
        .elect(Instant::now(), Some(&restarted))
        .unwrap();
    assert_eq!(believed(&alone(), Some(&latest)), outdated());
    // A newcomer reads the ancestry from the replica.
    let informed = Role {
        is_master: false,
        ..master("a", "y", "x")
    };
    let silent = roles(&[old, informed]);
    assert_eq!(believed(&silent, None), outdated());
    // An operator can return to the old master, which is then believed at once.
    let later = view.asked + FAILOVER_FORGOTTEN_AFTER;
    let back = silent.elect(later, Some(&view)).unwrap();
    assert_eq!(back.master, at("old"));
    let soon = later + Duration::from_millis(500);
    let again = silent.elect(soon, Some(&back)).unwrap();
    assert_eq!(again.master, at("old"));
}

#[test]
fn a_successor_that_returns_is_elected_again() {
    let (old, new) = (master("old", "x", ""), master("new", "y", "x"));
    let alone = |role| roles(std::slice::from_ref(role));
    let view = alone(&new).elect(Instant::now(), None).unwrap();
    let later = view.asked + FAILOVER_FORGOTTEN_AFTER;
    let back = alone(&old).elect(later, Some(&view)).unwrap();
    assert_eq!(believed(&roles(&[old, new]), Some(&back)), Ok(at("new")));
}

/// The primary's name and a reader's name of a managed service, after a failover.
#[test]
fn two_names_of_one_server_are_one_server() {
    let named = |address: &str, run_id: Option<&str>| Role {
        run_id: run_id.map(str::to_owned),
        ..master(address, "x", "")
    };
    for id in [Some("id"), None] {
        let both = roles(&[named("primary", id), named("reader", id)]);
        assert!(!both.unsettled());
        let first = both.elect(Instant::now(), None).unwrap();
        assert_eq!(first.master, at("primary"));
        let swapped = roles(&[named("reader", id), named("primary", id)]);
        assert_eq!(believed(&swapped, Some(&first)), Ok(at("primary")));
        assert_eq!(both.replicas(2, Some(&at("primary"))), Some(0));
    }
    // A server and its copy have one history, and are two.
    let two = roles(&[named("a", Some("1")), named("b", Some("2"))]);
    let undecided = Err(Undecided::TwoMasters(at("a"), at("b")));
    assert_eq!(believed(&two, None), undecided);
    let mut copy = named("b", None);
    copy.offset += 1;
    assert_eq!(believed(&roles(&[named("a", None), copy]), None), undecided);
    // Servers that report no history may have any.
    let silent = |address: &str, history: &str| Role {
        run_id: None,
        ..master(address, history, "")
    };
    for history in ["", "0000000000000000000000000000000000000000"] {
        let two = roles(&[silent("a", history), silent("b", history)]);
        assert_eq!(believed(&two, None), undecided, "{history:?}");
    }
    // A follower with two names counts once.
    let follower = |address: &str| Role {
        run_id: Some("follower".into()),
        ..replica(address, "x")
    };
    let strangers = [
        named("a", Some("1")),
        master("b", "y", ""),
        follower("c"),
        follower("d"),
        replica("e", "y"),
    ];
    assert_eq!(believed(&roles(&strangers), None), undecided);
}

#[test]
fn replicas_that_are_connected_count_beside_configured_ones() {
    let with = |connected| Role {
        connected,
        ..master("a", "x", "")
    };
    let replicas = |roles: &Answers, addresses| roles.replicas(addresses, Some(&at("a")));
    assert_eq!(replicas(&roles(&[with(2)]), 1), Some(2));
    assert_eq!(replicas(&roles(&[with(0)]), 3), Some(2));
    assert_eq!(replicas(&roles(&[replica("b", "x")]), 3), None);
}

#[test]
fn unrelated_masters_are_elected_by_their_followers_or_not_at_all() {
    let strangers = [master("a", "x", ""), master("b", "y", "z")];
    let undecided = Err(Undecided::TwoMasters(at("a"), at("b")));
    assert_eq!(believed(&roles(&strangers), None), undecided);
    let [a, b] = strangers;
    let answers = roles(&[a.clone(), b.clone(), replica("c", "y")]);
    assert_eq!(believed(&answers, None), Ok(at("b")));
    let answers = roles(&[a, b, replica("c", "y"), replica("d", "x")]);
    assert_eq!(believed(&answers, None), undecided);
}
