//! The report, in Markdown.

use std::{collections::BTreeMap, fmt::Write};

use crate::{
    multi::{self, Turns},
    peers::Name,
    results::{Figure, Results, Sent},
    stats::Spread,
    targets::{Outcome, Reach},
    workload::Workload,
};

/// The rounds of one workload: a row per peer, a median and its extremes per cell.
pub fn results(results: &Results) -> String {
    let columns = match results.workload {
        Workload::Pair { .. } => &PAIR[..],
        Workload::Handoff => &HANDOFF[..],
        Workload::Queue => &QUEUE[..],
    };
    let mut text = format!("### {}\n\n", results.workload.title());
    let names = columns.iter().map(|(_, name)| (*name).to_owned());
    row(&mut text, std::iter::once("peer".to_owned()).chain(names));
    row(
        &mut text,
        std::iter::once("---".to_owned()).chain(columns.iter().map(|_| "---:".to_owned())),
    );
    for (peer, _) in &results.samples {
        let cells = columns.iter().map(|(figure, _)| {
            let spread = results.spread(*peer, *figure);
            spread.map_or_else(|| "-".to_owned(), cell)
        });
        row(
            &mut text,
            std::iter::once(peer.text().to_owned()).chain(cells),
        );
    }
    text
}

const PAIR: [(Figure, &str); 6] = [
    (Figure::PerSecond, "pairs/s"),
    (Figure::P50, "pair p50, us"),
    (Figure::P99, "pair p99, us"),
    (Figure::Scripts, "scripts/pair"),
    (Figure::OtherCommands, "commands inside/pair"),
    (Figure::ServerCpu, "server CPU/pair, us"),
];

const HANDOFF: [(Figure, &str); 3] = [
    (Figure::P50, "p50, us"),
    (Figure::P99, "p99, us"),
    (Figure::PerSecond, "hand-offs/s"),
];

/// Each queue has to form first: a second holds as many hand-offs as it happens to, and the scripts are those of
/// getting in line as well.
const QUEUE: [(Figure, &str); 3] = [
    (Figure::P50, "p50, us"),
    (Figure::P99, "p99, us"),
    (Figure::Scripts, "scripts/waiter"),
];

/// A multi-lock: a row per peer, the median of all turns and its extremes per cell.
pub fn multi(all: &[Turns]) -> String {
    let mut text =
        "### multi-lock over 100 names of one server, taken and released by 1 task\n\n".to_owned();
    let columns = [
        "peer",
        "scripts to take",
        "scripts to release",
        "take p50, us",
        "release p50, us",
        "sent to take",
        "sent to release (MONITOR)",
    ];
    row(&mut text, columns.map(str::to_owned));
    let lines = ["---", "---:", "---:", "---:", "---:", "---", "---"];
    row(&mut text, lines.map(str::to_owned));
    for turns in all {
        let Turns { take, release, .. } = turns;
        let [sent_to_take, sent_to_release] = turns.sent.each_ref().map(counts);
        let cells = [
            turns.peer.text().to_owned(),
            cell(multi::scripts(take)),
            cell(multi::scripts(release)),
            cell(multi::micros(take)),
            cell(multi::micros(release)),
            sent_to_take,
            sent_to_release,
        ];
        row(&mut text, cells);
    }
    text
}

/// What each client sent by itself.
pub fn sent(all: &[Sent]) -> String {
    let mut text = "### Sent by the client, 1 task, per lock + unlock (MONITOR)\n\n".to_owned();
    row(
        &mut text,
        ["peer", "scripts", "other commands", "which"].map(str::to_owned),
    );
    row(&mut text, ["---", "---:", "---:", "---"].map(str::to_owned));
    for sent in all {
        let (scripts, others) = sent.per_pair();
        row(
            &mut text,
            [
                sent.peer.text().to_owned(),
                format!("{scripts:.3}"),
                format!("{others:.3}"),
                format!("{} in {} pairs", counts(&sent.commands), sent.pairs),
            ],
        );
    }
    text
}

fn counts(commands: &BTreeMap<String, u64>) -> String {
    let each = commands.iter();
    let each: Vec<String> = each
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    each.join(", ")
}

/// What was to be reached.
pub fn outcomes(outcomes: &[Outcome]) -> String {
    let mut text =
        "### What was to be reached: ours over theirs, by the medians above\n\n".to_owned();
    row(
        &mut text,
        ["what", "reach", "measured", ""].map(str::to_owned),
    );
    row(&mut text, ["---", "---:", "---:", "---"].map(str::to_owned));
    for outcome in outcomes {
        let reach = match outcome.reach {
            Reach::AtMost(most) => format!("<= {most}"),
            Reach::AtLeast(least) => format!(">= {least}"),
        };
        let measured = outcome.ratio.map(|ratio| format!("{ratio:.3}"));
        let met = match outcome.is_met() {
            Some(true) => "met",
            Some(false) => "**not met**",
            None => "not measured",
        };
        let measured = measured.unwrap_or_else(|| "-".into());
        row(
            &mut text,
            [outcome.what.clone(), reach, measured, met.into()],
        );
    }
    text
}

/// The line that a round leaves on standard error.
pub fn progress(workload: Workload, peer: Name, per_second: f64, p50: f64) -> String {
    let what = workload.name();
    format!(
        "{what:>9} {:>9}: {per_second:>8.0} /s, p50 {p50:>7.1} us",
        peer.text()
    )
}

fn row(text: &mut String, cells: impl IntoIterator<Item = String>) {
    for cell in cells {
        let _ = write!(text, "| {cell} ");
    }
    text.push_str("|\n");
}

fn cell(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    format!("{} ({}..{})", number(median), number(min), number(max))
}

/// Three digits or so, whatever the size.
fn number(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.1} k", value / 1e3),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_about_three_digits() {
        let all = [123_456.0, 4711.4, 47.14, 1.996].map(number);
        assert_eq!(all, ["123.5 k", "4711", "47.1", "2.00"]);
        let spread = Spread::of([1.0, 2.0, 30.0]);
        assert_eq!(cell(spread), "2.00 (1.00..30.0)");
    }
}
