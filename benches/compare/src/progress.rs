//! The progress of a run.

use std::time::Instant;

use crate::{figure::Figure, results::Row, tables::number, workload::Workload};

/// Prints the line about a round on standard error.
pub fn progress(began: Instant, workload: Workload, row: &Row) {
    let Some(last) = row.samples.last() else {
        return;
    };
    let figures = workload.columns().iter().take(3);
    let figures = figures.filter_map(|(figure, name): &(Figure, _)| {
        Some(format!("{name} {}", number(*last.get(figure)?)))
    });
    let figures: Vec<String> = figures.collect();
    let (what, peer) = (workload.name(), &row.peer);
    let seconds = began.elapsed().as_secs();
    eprintln!(
        "{seconds:>5} s {what:>13} {peer:>15}: {}",
        figures.join(", ")
    );
}
