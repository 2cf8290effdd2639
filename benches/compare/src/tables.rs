//! The report, in Markdown.

use std::{collections::BTreeMap, fmt::Write};

use compare::stats::Spread;

use crate::{
    figure::Figure,
    results::{Report, Row, Table},
    target::Reach,
    targets::{Outcome, outcomes},
    workload::Workload,
};

/// The whole report.
pub fn report(report: &Report) -> String {
    let mut text = about(report);
    for table in &report.tables {
        if let Some(workload) = Workload::read(&table.workload) {
            let _ = write!(text, "\n{}", one(workload, table));
        }
    }
    let _ = write!(text, "\n{}", reached(&outcomes(report)));
    let _ = writeln!(text, "\nLoad average after: {}.", report.about.load_after);
    text
}

fn about(report: &Report) -> String {
    let about = &report.about;
    let versions = about.versions.iter();
    let versions: Vec<String> = versions
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    let mut text = format!(
        "- {}, commit {}; {} minutes\n- {}\n- {} cores of {}; Linux {}; load average before {}\n\
         - {} rounds of {} s per peer and workload, in rotating order, on one server; median (min..max)\n",
        about.date,
        about.commit,
        (about.took_seconds / 60.0).ceil(),
        versions.join(";\n  "),
        about.cores,
        about.processor,
        about.kernel,
        about.load_before,
        about.rounds,
        about.seconds,
    );
    let shares = |table: &Table| {
        let workload = Workload::read(&table.workload);
        matches!(workload, Some(Workload::Share(_)))
    };
    if report.tables.iter().any(shares) {
        let (rounds, seconds) = (about.share_rounds, about.share_seconds);
        let _ = writeln!(
            text,
            "- where processes contend: {rounds} rounds of {seconds} s, of {} s where few turns fit in",
            seconds * 2.0
        );
    }
    for (peer, why) in &report.absent {
        let _ = writeln!(text, "- without {peer}: {why}");
    }
    if !report.unmeasured.is_empty() {
        let missing = report.unmeasured.join(", ");
        let _ = writeln!(text, "- time was up before: {missing}");
    }
    text
}

/// A table with a row per peer, and with a median and its extremes per cell.
pub fn one(workload: Workload, table: &Table) -> String {
    let columns = workload.columns();
    let mut text = format!("### {}\n\n", workload.title());
    let names = columns.iter().map(|(_, name)| (*name).to_owned());
    row(&mut text, std::iter::once("peer".to_owned()).chain(names));
    let lines = columns.iter().map(|_| "---:".to_owned());
    row(&mut text, std::iter::once("---".to_owned()).chain(lines));
    for (peers, medians) in grouped(&table.rows) {
        let cells = columns.iter().map(|(figure, _)| {
            let spread = medians.get(figure);
            spread.map_or_else(|| "-".to_owned(), |spread| cell(*spread))
        });
        row(&mut text, std::iter::once(peers).chain(cells));
    }
    text + &footnotes(&table.rows)
}

/// Peers that measured nothing for the same reason share a row, and a footnote.
fn grouped(rows: &[Row]) -> Vec<(String, &BTreeMap<Figure, Spread>)> {
    let mut groups: Vec<(String, &Row)> = Vec::new();
    for row in rows {
        let same =
            |other: &&mut (String, &Row)| row.missing.is_some() && other.1.missing == row.missing;
        match groups.iter_mut().find(same) {
            Some((peers, _)) => peers.push_str(&format!(", {}", row.peer)),
            None => groups.push((row.peer.clone(), row)),
        }
    }
    let groups = groups.into_iter();
    groups.map(|(peers, row)| (peers, &row.medians)).collect()
}

fn footnotes(rows: &[Row]) -> String {
    let mut reasons: Vec<(&str, String)> = Vec::new();
    for row in rows {
        for what in row.missing.iter().chain(&row.note) {
            match reasons.iter_mut().find(|(reason, _)| reason == what) {
                Some((_, peers)) => peers.push_str(&format!(", {}", row.peer)),
                None => reasons.push((what, row.peer.clone())),
            }
        }
    }
    let lines = reasons
        .iter()
        .map(|(what, peers)| format!("- {peers}: {what}\n"));
    match reasons.is_empty() {
        true => String::new(),
        false => format!("\n{}", lines.collect::<String>()),
    }
}

/// The table of the targets, with the measured figures.
fn reached(outcomes: &[Outcome]) -> String {
    let mut text = "### Targets: our figure, or our figure divided by theirs\n\n".to_owned();
    row(
        &mut text,
        ["figure", "target", "measured", ""].map(str::to_owned),
    );
    row(&mut text, ["---", "---:", "---:", "---"].map(str::to_owned));
    for outcome in outcomes {
        let reach = match outcome.reach {
            Reach::AtMost(most) => format!("<= {most}"),
            Reach::AtLeast(least) => format!(">= {least}"),
        };
        let measured = outcome.measured.map(|measured| format!("{measured:.3}"));
        let measured = measured.unwrap_or_else(|| "-".into());
        let met = match outcome.is_met() {
            Some(true) => "met",
            Some(false) if outcome.is_later => "not yet reached",
            Some(false) => "**not met**",
            None => "not measured",
        };
        row(
            &mut text,
            [outcome.what.clone(), reach, measured, met.into()],
        );
    }
    text
}

fn row(text: &mut String, cells: impl IntoIterator<Item = String>) {
    for cell in cells {
        let _ = write!(text, "| {cell} ");
    }
    text.push_str("|\n");
}

fn cell(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    match min == max {
        true => number(median),
        false => format!("{} ({}..{})", number(median), number(min), number(max)),
    }
}

/// A number with about three digits, whatever its size.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 10_000.0 => format!("{:.1} k", value / 1e3),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{results::tests::report as with, workload::pair};

    #[test]
    fn numbers_keep_about_three_digits() {
        let all = [123_456.0, 4711.4, 47.14, 1.996, -47.14].map(number);
        assert_eq!(all, ["123.5 k", "4711", "47.1", "2.00", "-47.1"]);
        assert_eq!(cell(Spread::of([1.0, 2.0, 30.0])), "2.00 (1.00..30.0)");
        assert_eq!(cell(Spread::of([2.0])), "2.00");
    }

    #[test]
    fn an_absent_peer_is_named_with_the_reason() {
        let mut measured = with(&[
            (pair(1), "ours", Figure::P50, 150.0),
            (pair(1), "redsync", Figure::P50, 150.0),
            (pair(1), "rslock", Figure::P50, 150.0),
        ]);
        measured.tables[0].rows[1].miss("it is asleep".into());
        measured.tables[0].rows[2].miss("it is asleep".into());
        measured
            .absent
            .insert("redis-py".into(), "no Python".into());
        let text = report(&measured);
        for line in [
            "### lock + unlock, 1 task",
            "| ours | - | 150 | - | - | - | - | - |",
            "| redsync, rslock | - | - | - | - | - | - | - |",
            "- redsync, rslock: it is asleep",
            "- without redis-py: no Python",
            "| pair p50, 1 task / raw fred | <= 1.05 | - | not measured |",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
    }
}
