//! The charts of workloads in which processes contend: the least share of a process, as a part of an equal one, and the waits of a task that is
//! alone in its process.

use compare::Failure;
use plotters::{prelude::*, style::text_anchor};

use crate::{
    chart_style::{Area, FONT, colour},
    figure::Figure,
    results::Report,
    share::{self, Share},
    share_targets::{LONE_WAIT_MS, least_share},
    workload::Workload,
};

/// The height of a bar with the gap beside it, in pixels.
const BAR: u32 = 22;
const BESIDES: u32 = 110;
/// The part of a row that is above its bar, and below it.
const GAP: f64 = 0.12;

/// The bar of one row of a workload.
pub struct Bar {
    row: String,
    name: String,
    value: f64,
    target: Option<f64>,
}

/// A kind of chart.
pub struct Kind {
    pub file: &'static str,
    title: &'static str,
    axis: &'static str,
    /// The least upper end of the axis: an equal share, or the target.
    least_end: f64,
}

pub const SHARES: Kind = Kind {
    file: "shares.svg",
    title: "least share of a process, in percent of an equal one",
    axis: "percent; a line marks a target",
    least_end: 100.0,
};

pub const LONE: Kind = Kind {
    file: "lone.svg",
    title: "p99 wait of a task that is alone in its process, beside 64",
    axis: "milliseconds; 10 ms of work; a line marks a target",
    least_end: LONE_WAIT_MS,
};

/// The bars of the shares, in the order of the workloads.
pub fn bars(report: &Report) -> Vec<Bar> {
    share::ALL
        .into_iter()
        .flat_map(|one| of(report, one))
        .collect()
}

fn of(report: &Report, share: Share) -> Vec<Bar> {
    let rows = report
        .table(Workload::Share(share))
        .map(|table| &table.rows);
    let shown = |figure| share.columns().iter().any(|(column, _)| *column == figure);
    let rows = rows
        .into_iter()
        .flatten()
        .filter(|_| shown(Figure::LeastShare));
    let bar = |row: &crate::results::Row| {
        Some(Bar {
            row: row.peer.clone(),
            name: share.name(),
            value: row.medians.get(&Figure::LeastShare)?.median,
            target: least_share(share),
        })
    };
    rows.filter_map(bar).collect()
}

/// The bars of the waits of lone tasks.
pub fn lone(report: &Report) -> Vec<Bar> {
    let shares = share::ALL.into_iter();
    let figures = shares.filter_map(|one| Some((one, one.lone_p99()?)));
    let bars = figures.flat_map(|(one, figure)| {
        let rows = report.table(Workload::Share(one)).map(|table| &table.rows);
        let bar = move |row: &crate::results::Row| {
            Some(Bar {
                row: row.peer.clone(),
                name: one.name(),
                value: row.medians.get(&figure)?.median,
                target: Some(LONE_WAIT_MS),
            })
        };
        rows.into_iter()
            .flatten()
            .filter_map(bar)
            .collect::<Vec<_>>()
    });
    bars.collect()
}

pub fn size(bars: &[Bar]) -> (u32, u32) {
    (860, BESIDES + BAR * bars.len() as u32)
}

pub fn draw(area: &Area<'_>, kind: &Kind, bars: &[Bar]) -> Result<(), Failure> {
    let longest = bars
        .iter()
        .map(|bar| bar.value)
        .fold(kind.least_end, f64::max);
    // The figures are to the right of the bars.
    let before = -longest / 100.0;
    let mut chart = ChartBuilder::on(area)
        .caption(kind.title, (FONT, 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(230)
        .build_cartesian_2d(before..1.12 * longest, 0.0..bars.len() as f64)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc(kind.axis)
        .axis_desc_style((FONT, 15))
        .label_style((FONT, 13))
        .x_labels(6)
        .y_labels(0)
        .light_line_style(WHITE)
        .draw()?;
    let font = |side| {
        let anchor = text_anchor::Pos::new(side, text_anchor::VPos::Center);
        (FONT, 13).into_text_style(area).pos(anchor)
    };
    let (named, figured) = (
        font(text_anchor::HPos::Right),
        font(text_anchor::HPos::Left),
    );
    for (at, bar) in bars.iter().enumerate() {
        // The first bar is at the top.
        let (top, bottom) = ((bars.len() - at) as f64, (bars.len() - at - 1) as f64);
        let middle = f64::midpoint(top, bottom);
        let corners = [(0.0, bottom + GAP), (bar.value, top - GAP)];
        chart.draw_series([Rectangle::new(corners, colour(&bar.row).filled())])?;
        let name = format!("{} {}", bar.name, bar.row);
        let value = format!("{:.0}", bar.value);
        chart.draw_series([
            Text::new(name, (before, middle), named.clone()),
            Text::new(value, (bar.value - before, middle), figured.clone()),
        ])?;
        if let Some(target) = bar.target {
            let line = vec![(target, bottom), (target, top)];
            chart.draw_series([PathElement::new(line, BLACK.stroke_width(2))])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        peers::{MIXED, OURS, REDISSON},
        results::tests::report,
    };

    #[test]
    fn a_bar_for_each_row_that_has_a_share() {
        let [crowd, eight] = [share::CROWD_1MS, share::MIXED_8_8].map(Workload::Share);
        let dead = Workload::Share(Share::Dead);
        let measured = report(&[
            (crowd, OURS, Figure::LeastShare, 97.0),
            (crowd, REDISSON, Figure::LeastShare, 81.0),
            (eight, MIXED, Figure::LeastShare, 0.0),
            (dead, OURS, Figure::LeastShare, 100.0),
        ]);
        let shown = bars(&measured);
        let shown: Vec<_> = shown
            .iter()
            .map(|bar| (bar.name.as_str(), bar.row.as_str(), bar.value, bar.target))
            .collect();
        assert_eq!(
            shown,
            [
                ("share-mixed-8-8", MIXED, 0.0, Some(50.0)),
                ("share-crowd", OURS, 97.0, Some(50.0)),
                ("share-crowd", REDISSON, 81.0, Some(50.0)),
            ]
        );
    }
}
