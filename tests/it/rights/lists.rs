//! The commands on the page are those in the scripts of each kind, whether or not another test
//! reaches them.

use std::{collections::BTreeSet, fs};

use super::{rights, steps};

const PLAIN: [&str; 5] = ["acquire", "release", "renew", "force_release", "inspect"];

/// The scripts of a kind, by family and verb.
fn scripts(kind: &str) -> Vec<String> {
    let of = |family: &str, verbs: &[&str]| -> Vec<String> {
        verbs
            .iter()
            .map(|verb| format!("{family}_{verb}"))
            .collect()
    };
    match kind {
        "reentrant" | "non-reentrant" | "spin" => {
            [of("reentrant", &PLAIN), of("reentrant", &["keep"])].concat()
        }
        "fenced" => [
            of("fenced", &["acquire"]),
            of("reentrant", &PLAIN[1..]),
            of("reentrant", &["keep"]),
            of("election", &["announce", "leader"]),
        ]
        .concat(),
        "fair" | "non-reentrant-fair" => [
            of("fair", &["acquire", "release", "abandon", "force_release"]),
            of("reentrant", &["renew", "inspect"]),
            of("fair", &["waiters", "keep"]),
        ]
        .concat(),
        "read" | "write" => [
            of("read", &PLAIN),
            of("write", &PLAIN),
            of("write", &["intend", "keep"]),
        ]
        .concat(),
        "semaphore" => [
            of("semaphore", &["acquire", "release", "drain"]),
            of("number", &["begin", "inspect"]),
        ]
        .concat(),
        "permit-expirable-semaphore" => [
            of(
                "permit",
                &["acquire", "release", "extend", "left", "count", "set"],
            ),
            of("semaphore", &["release"]),
            of("number", &["begin"]),
        ]
        .concat(),
        "count-down-latch" => [
            of("latch", &["count_down", "look", "delete"]),
            of("number", &["begin", "inspect"]),
        ]
        .concat(),
        "simple" => [of("simple", &PLAIN), of("simple", &["holders", "keep"])].concat(),
        "holders" => vec!["holders".to_owned()],
        other => of(other, &PLAIN),
    }
}

const KINDS: [&str; 13] = [
    "reentrant",
    "non-reentrant",
    "spin",
    "fenced",
    "fair",
    "non-reentrant-fair",
    "read",
    "write",
    "simple",
    "semaphore",
    "permit-expirable-semaphore",
    "count-down-latch",
    "holders",
];

/// The commands that a script calls, in lower case. `PUBLISH` is a local variable of `batch.lua`,
/// because clusters use another command.
fn commands(text: &str) -> impl Iterator<Item = String> {
    let calls = text.split("call(").skip(1);
    let names = calls.filter_map(|call| {
        let name = call.split([',', ')']).next()?.trim_matches('\'');
        name.chars()
            .all(|letter| letter.is_ascii_uppercase())
            .then_some(name)
    });
    names.map(str::to_lowercase)
}

/// The commands that the page allows under a heading.
fn allowed(part: &str) -> BTreeSet<String> {
    let words = rights(part).into_iter();
    words
        .filter_map(|word| word.strip_prefix('+').map(str::to_owned))
        .collect()
}

#[test]
fn the_page_and_the_scripts_name_the_same_commands() {
    let optional = allowed("optional");
    for kind in KINDS {
        let texts = scripts(kind).into_iter().flat_map(|script| {
            let files = steps::files(&script);
            files.map(str::to_owned).collect::<Vec<_>>()
        });
        let mut called: BTreeSet<_> = texts
            .flat_map(|file| commands(&steps::lua(&file)).collect::<Vec<_>>())
            .collect();
        called.retain(|command| !optional.contains(command));
        let mut listed = allowed(kind);
        listed.retain(|command| !["subscribe", "unsubscribe"].contains(&&**command));
        assert_eq!(listed, called, "{kind}");
    }
}

/// The commands of a kind that no script but those that end with `verb` calls.
fn only_of(verb: &str, kind: &str) -> Vec<String> {
    let by_other_scripts: BTreeSet<_> = scripts(kind)
        .iter()
        .filter(|script| !script.ends_with(verb))
        .flat_map(|script| {
            let files = steps::files(script);
            files.map(steps::lua).collect::<Vec<_>>()
        })
        .flat_map(|text| commands(&text).collect::<Vec<_>>())
        .collect();
    let mut only = allowed(kind);
    only.retain(|command| {
        !by_other_scripts.contains(command) && !["subscribe", "unsubscribe"].contains(&&**command)
    });
    only.into_iter().collect()
}

/// The commands that only `force_unlock` and `run_at_least` need, and that a user may go without.
#[test]
fn the_page_names_the_commands_that_one_call_alone_needs() {
    for (kind, forced, kept) in [
        (
            "reentrant",
            &["exists", "hexists"] as &[_],
            &["hdel"] as &[_],
        ),
        ("fenced", &["exists", "hexists"], &["hdel"]),
        ("fair", &["exists", "hexists"], &["hdel"]),
        ("read", &["exists", "hget"], &[]),
        ("simple", &[], &[]),
    ] {
        assert_eq!(only_of("force_release", kind), forced, "{kind}");
        assert_eq!(only_of("keep", kind), kept, "{kind}");
    }
}

#[test]
fn no_script_is_left_out() {
    let of_kinds: BTreeSet<_> = KINDS.into_iter().flat_map(scripts).collect();
    let folder = format!("{}/lua", env!("CARGO_MANIFEST_DIR"));
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let mut left: Vec<_> = files
        .filter_map(|file| {
            let name = file.file_name().into_string().unwrap();
            name.strip_suffix(".lua").map(str::to_owned)
        })
        .collect();
    let shared = [
        "attempts",
        "batch",
        "clock",
        "expiry",
        "number",
        "owners",
        "permits",
        "read_write",
        "run",
        "shorten",
        "unannounced",
    ];
    left.retain(|name| !of_kinds.contains(name) && !shared.contains(&&**name));
    assert_eq!(left, [""; 0]);
}
