//! Named differences, and the same with a mistake in them. The owner is a, in the step from 1,000 to 1,010 ms.

use super::super::situation::{LONG, games};
use super::*;

/// `ANSWER/KEYS`: a key ends after the watchdog's lease, and a marker (M) at 60,000 ms, unless the step has set a lease
/// (`KEY+LEASE`) or deleted it (`KEY-`).
fn seen(owner: usize, text: &str) -> Seen {
    let (answer, keys) = text.split_once('/').expect("ANSWER/KEYS");
    let read = |is_over: bool| {
        let keys = keys.split_whitespace();
        let keys = keys.filter(move |key| !is_over || !key.ends_with('-'));
        keys.map(move |key| {
            let key = key.trim_end_matches('-');
            let (name, lease) = key.split_once('+').unwrap_or((key, ""));
            let set = lease.parse::<i64>().ok().filter(|_| is_over);
            let (name, at) = match name {
                "M" => ("{NAME}:a:rwlock_timeout:1", 60_000),
                _ => (name, LONG),
            };
            let at = set.map_or(at, |lease| 1_005 + lease);
            (name.to_owned(), "a=1 mode=read".to_owned(), Some(at))
        })
    };
    let before = Snapshot::default().followed_by(1_000, read(false));
    let after = before.followed_by(1_010, read(true));
    let answers = vec![(owner, answer.to_owned())];
    Seen {
        answers,
        before,
        after,
    }
}

/// The named difference of a step in Redisson and here, after acquisitions with token 7; `""` without one, `"?"` for another difference.
fn named(game: &str, holds: &str, step: &str, plays: [&str; 2], owner: usize) -> &'static str {
    let step_of = |text: &str| {
        let (side, action) = text.split_once('.').unwrap_or(("", text));
        Step::new(owner, side, action)
    };
    let game = games(LONG).find(|known| known.kind == game);
    let mut situation = Situation::new(game.expect("a game"));
    for hold in holds.split(", ").filter(|hold| !hold.is_empty()) {
        situation.note(&step_of(hold), &[(owner, "true 7".to_owned())]);
    }
    let [java, mixed] = plays.map(|play| seen(owner, play));
    let named = compare(&situation, &step_of(step), &java, &mixed);
    named.map_or("?", |named| named.first().copied().unwrap_or(""))
}

#[test]
fn each_side_does_what_the_page_says() {
    #[rustfmt::skip]
    let rows: &[(&str, &str, &str, [&str; 2], &str)] = &[
        // A short re-entry cuts Redisson's lease alone.
        ("reentrant", "lock", "trylock 0 60000", ["true/NAME+60000", "true/NAME"], "re-entry lease"),
        ("reentrant", "lock", "trylock 0 60000", ["true/NAME+60000", "true/NAME+60000"], ""),
        ("reentrant", "lock", "trylock 0 60000", ["true/NAME+60000", "true/NAME+61000"], "?"),
        ("reentrant", "lock", "trylock 0 60000", ["true/NAME", "true/NAME+60000"], "?"),
        // An inner release leaves the longest lease that remains.
        ("reentrant", "lock 60000, lock 9000, lock", "unlock", ["ok/NAME+21600000", "ok/NAME+60000"], "inner release lease"),
        ("reentrant", "lock 60000, lock 9000, lock", "unlock", ["ok/NAME+21600000", "ok/NAME+9000"], "?"),
        ("readwrite", "write.lock, read.lock 60000", "write.unlock", ["ok/NAME M", "ok/NAME+58995 M"], "downgrade lease"),
        ("readwrite", "write.lock, read.lock 60000", "write.unlock", ["ok/NAME M", "ok/NAME+60000 M"], "?"),
        ("readwrite", "write.lock", "write.trylock", ["true/NAME+43198995", "true/NAME+21600000"], "re-entry lease"),
        ("readwrite", "write.lock", "write.trylock", ["true/NAME+21600000", "true/NAME+43198995"], "?"),
        ("readwrite", "read.lock", "write.trylock", ["false/", "refused: would deadlock/"], "upgrade"),
        ("fenced", "lock", "lock", ["true 9/", "true 7/"], "inner token"),
        ("fenced", "lock", "lock", ["true 7/", "true 9/"], "?"),
        ("fair", "", "unlock", ["ok/", "refused: not held/"], "release of a free fair lock"),
        ("fair", "", "unlock", ["refused: not held/", "ok/"], "?"),
        ("fair", "", "unlock", ["ok/NAME", "refused: not held/NAME"], "?"),
        ("multi", "lock", "unlock", ["refused: not held/NAME:fair", "refused: not held/NAME:fair-"], "group with a lost member"),
        ("multi", "lock", "unlock", ["refused: not held/NAME:fair-", "refused: not held/NAME:fair"], "?"),
        ("multi", "lock", "trylock", ["refused: not held/NAME:fair", "refused: not held/NAME:fair-"], "?"),
    ];
    for &(game, holds, step, plays, expected) in rows {
        let named = |owner| named(game, holds, step, plays, owner);
        assert_eq!(named(0), expected, "{game}, {step}: {plays:?}");
        // An owner in Redisson does the same in both plays.
        let same = if expected.is_empty() { "" } else { "?" };
        assert_eq!(named(2), same, "{game}, {step}: {plays:?}");
    }
}
