//! Checks the rights of the user against the table of docs/operations.md.

use std::collections::BTreeSet;

use redisson_lock::probe::{OPERATIONS, Probe, ProbedNode, SetUp};

use super::{Findings, commands::RENAMED};
use crate::{
    Failure,
    answers::{error, list, number, text},
    cli::Kind,
    entry::prefixed,
};

/// Returns for each command whether the user may run it: 1, 0, or -1 if the server does not know the command. Line ends separate
/// the words of a command, because no name of a lock contains one.
const SCRIPT: &str = "\
if not redis.acl_check_cmd then return 'none' end
local rights = {}
for index, command in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(command, '[^\\n]+') do words[#words + 1] = word end
  local known, may = pcall(redis.acl_check_cmd, unpack(words))
  rights[index] = not known and -1 or may and 1 or 0
end
return rights";

/// What [`SCRIPT`] says of a command that the server does not know.
const UNKNOWN: i64 = -1;

/// A group of rights on the page.
#[derive(Debug, Default, PartialEq, Eq)]
struct Section {
    title: String,
    commands: Vec<String>,
    /// The prefixes of keys; the name of a lock follows.
    keys: Vec<String>,
    /// The prefixes of channels.
    channels: Vec<String>,
}

fn sections() -> Vec<Section> {
    let text = OPERATIONS
        .split("## Rights (ACL)")
        .nth(1)
        .unwrap_or_default();
    let block = text.split("```text").nth(1).unwrap_or_default();
    let block = block.split("```").next().unwrap_or_default();
    let mut sections = Vec::<Section>::new();
    for line in block.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            sections.push(Section {
                title: title.to_owned(),
                ..Section::default()
            });
        } else if let (Some(rights), Some(section)) =
            (line.strip_prefix("ACL SETUSER app "), sections.last_mut())
        {
            for right in rights.split(' ') {
                let (sort, rest) = right.split_at(1);
                match sort {
                    "+" => section.commands.push(rest.to_owned()),
                    "~" => section.keys.push(rest.to_owned()),
                    "&" => section.channels.push(rest.to_owned()),
                    _ => {}
                }
            }
        }
    }
    sections
}

/// Returns the key or channel of the lock `name` for a pattern of the page.
fn named(pattern: &str, name: &str) -> String {
    let prefix = pattern.strip_suffix("app:*").unwrap_or(pattern);
    match prefix.strip_suffix('{') {
        None => name.to_owned(),
        Some("") => match name.contains('{') {
            true => format!("{name}:marker"),
            false => format!("{{{name}}}:marker"),
        },
        Some(prefix) => prefixed(prefix.trim_end_matches(':'), name),
    }
}

/// A command to check, with the key or channel that it uses.
struct Check {
    right: String,
    about: Option<String>,
    words: Vec<String>,
}

impl Section {
    fn checks(&self, name: &str) -> Vec<Check> {
        let mut checks = Vec::new();
        for command in &self.commands {
            let words: Vec<String> = command.split('|').map(str::to_owned).collect();
            let (sigil, about) = match &**command {
                "subscribe" | "unsubscribe" | "publish" | "spublish" | "ssubscribe"
                | "sunsubscribe" => ('&', &self.channels),
                "eval" | "evalsha" | "time" | "ping" | "role" | "info" | "select" | "asking"
                | "wait" | "waitaof" => (' ', &Vec::new()),
                command if command.contains('|') => (' ', &Vec::new()),
                _ => ('~', &self.keys),
            };
            let mut check = |about: Option<String>| {
                let mut words = words.clone();
                words.extend(about.clone());
                // Arguments for commands that cannot find their keys otherwise. The exceptions take every word for a key.
                if !matches!(&**command, "del" | "exists" | "subscribe" | "unsubscribe") {
                    words.extend(["0", "0", "0"].map(str::to_owned));
                }
                checks.push(Check {
                    right: format!("+{command}"),
                    about: about.map(|about| format!("{sigil}{about}")),
                    words,
                });
            };
            match about.is_empty() {
                true => check(None),
                false => about
                    .iter()
                    .for_each(|pattern| check(Some(named(pattern, name)))),
            }
        }
        checks
    }
}

/// The kinds of lock that need the rights of a section.
fn kinds_of(title: &str) -> &'static [Kind] {
    match title {
        "reentrant, non-reentrant" => &[Kind::Reentrant],
        "fenced" => &[Kind::Fenced],
        "fair, non-reentrant-fair" => &[Kind::Fair],
        "read, write" => &[Kind::Read, Kind::Write],
        "simple" => &[Kind::Simple],
        _ => &[],
    }
}

/// Whether the section is of a synchronizer that is no lock, and that the service may not use.
fn is_no_lock(title: &str) -> bool {
    [
        "semaphore",
        "permit-expirable-semaphore",
        "count-down-latch",
    ]
    .contains(&title)
}

/// Whether this set-up needs the rights of the section.
fn is_about(title: &str, set_up: &SetUp) -> bool {
    match title {
        "sentinel" => matches!(set_up, SetUp::Sentinel(_)),
        "replicated" => *set_up == SetUp::Replicated,
        "cluster" => *set_up == SetUp::Cluster,
        "durability" => *set_up != SetUp::Single,
        // These rights are of another user, or for a rare setting.
        "sentinel: on every sentinel" | "another database" | "wait_for_disk" => false,
        _ => true,
    }
}

pub async fn look(
    probe: &Probe,
    asked: &mut ProbedNode,
    name: &str,
    kinds: &[Kind],
    findings: &mut Findings,
) -> Result<(), Failure> {
    let mut usable = 0;
    let user = probe.user().unwrap_or("default");
    for section in sections() {
        let of_kind = kinds_of(&section.title);
        let is_wanted = of_kind.iter().any(|kind| kinds.contains(kind));
        let may_be_unused = !of_kind.is_empty() || is_no_lock(&section.title);
        let is_left_out = may_be_unused && !kinds.is_empty() && !is_wanted;
        if !is_about(&section.title, probe.set_up()) || is_left_out {
            continue;
        }
        let checks = section.checks(name);
        let commands = checks.iter().map(|check| check.words.join("\n"));
        let words: Vec<String> = [SCRIPT.to_owned(), "0".to_owned()]
            .into_iter()
            .chain(commands)
            .collect();
        let answer = match asked.ask("EVAL", &words).await {
            Ok(answer) => answer,
            Err(error) => {
                findings.note("rights", format!("not checked: {error}"));
                return Ok(());
            }
        };
        if let Some(message) = error(&answer) {
            findings.problem(
                "rights",
                format!("scripts are refused: {message}"),
                &format!("ACL SETUSER {user} +eval +evalsha"),
            );
            return Ok(());
        }
        if text(&answer).is_some() {
            findings.note("rights", "not checked: this requires Redis 7.0 or later");
            return Ok(());
        }
        let allowed: Vec<_> = list(&answer).iter().map(number).collect();
        let title = &section.title;
        let missing = missing(&checks, &allowed);
        let unknown = unknown(&checks, &allowed);
        let is_for_jobs = |right: &String| is_for_jobs(title, right);
        let works =
            missing.iter().all(is_for_jobs) && unknown.iter().all(|right| works_without(right));
        if works {
            usable += of_kind.len();
        }
        if missing.is_empty() && unknown.is_empty() {
            findings.fine("rights", format!("{title}: user {user} has all of them"));
            continue;
        }
        let (missing, unknown) = (missing.join(" "), Vec::from_iter(unknown).join(" "));
        let (says, to_do) = match &*missing {
            "" => (
                format!("{title}: the server lacks the commands of {unknown}"),
                RENAMED.to_owned(),
            ),
            _ => (
                format!(
                    "{title}: user {user} lacks {missing}{}",
                    if works { JOBS } else { "" }
                ),
                format!("ACL SETUSER {user} {missing} (for all names: docs/operations.md, Rights)"),
            ),
        };
        match &**title {
            "optional" | "holders" | "spin" => findings.note("rights", says),
            _ if works => findings.note("rights", says),
            "durability" => findings.warn("rights", says, &to_do),
            _ if may_be_unused && !is_wanted => {
                findings.note("rights", format!("{says}: the user cannot use this kind"));
            }
            _ => findings.problem("rights", says, &to_do),
        }
    }
    if usable == 0 && kinds.is_empty() {
        let says = format!("user {user} cannot use a lock of any kind with the name {name:?}");
        findings.problem(
            "rights",
            says,
            "Grant the rights of docs/operations.md, or check another name by --name.",
        );
    }
    Ok(())
}

/// Whether locks work without the command: by `EVAL`, and by polls. The check of commands says what that costs.
fn works_without(right: &str) -> bool {
    matches!(right, "+evalsha" | "+subscribe" | "+unsubscribe")
}

/// What a user without the right of [`is_for_jobs`] goes without.
const JOBS: &str = ", which only run_at_least needs: its end takes command_wait longer";

/// Whether only `run_at_least` needs the right, for locks of this section.
fn is_for_jobs(title: &str, right: &str) -> bool {
    right == "+hdel" && title != "read, write"
}

/// The rights to commands that the server does not know, such as renamed ones.
fn unknown(checks: &[Check], allowed: &[Option<i64>]) -> BTreeSet<String> {
    let checks = checks.iter().zip(allowed);
    checks
        .filter(|(_, allowed)| **allowed == Some(UNKNOWN))
        .map(|(check, _)| check.right.clone())
        .collect()
}

/// Returns the missing rights: commands that are denied on all keys, and keys that are denied for all commands. If either could
/// explain a denial, both are listed.
fn missing(checks: &[Check], allowed: &[Option<i64>]) -> Vec<String> {
    let none = |fits: &dyn Fn(&Check) -> bool| {
        let of = checks.iter().zip(allowed);
        let mut known = of
            .filter(|(check, allowed)| fits(check) && **allowed != Some(UNKNOWN))
            .peekable();
        known.peek().is_some() && known.all(|(_, allowed)| *allowed == Some(0))
    };
    let rights: BTreeSet<_> = checks.iter().map(|check| &check.right).collect();
    let about: BTreeSet<_> = checks
        .iter()
        .filter_map(|check| check.about.as_ref())
        .collect();
    let rights = rights
        .into_iter()
        .filter(|right| none(&|check| check.right == **right));
    let about = about
        .into_iter()
        .filter(|about| none(&|check| check.about.as_ref() == Some(*about)));
    rights.chain(about).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_rights_of_each_kind() {
        let sections = sections();
        let titles: Vec<_> = sections.iter().map(|section| &*section.title).collect();
        for title in [
            "every client",
            "reentrant, non-reentrant",
            "fair, non-reentrant-fair",
            "fenced",
            "read, write",
            "simple",
            "cluster",
            "optional",
        ] {
            assert!(titles.contains(&title), "{titles:?}");
        }
        let fair = &sections[titles
            .iter()
            .position(|title| title.starts_with("fair"))
            .unwrap()];
        assert!(fair.commands.contains(&"zadd".to_owned()));
        let keys = fair.keys.iter().map(|key| named(key, "a"));
        assert_eq!(
            keys.collect::<Vec<_>>(),
            ["a", "redisson_lock_queue:{a}", "redisson_lock_timeout:{a}"]
        );
        assert_eq!(named("{app:*", "a"), "{a}:marker");
        assert_eq!(
            named("redisson_lock__channel:{app:*", "{a}:b"),
            "redisson_lock__channel:{a}:b"
        );
    }
}
