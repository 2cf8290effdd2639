//! The chart of the least share of a process, as a part of an equal one.

use compare::Failure;
use plotters::{prelude::*, style::text_anchor};

use crate::{
    chart_style::{Area, FONT, colour},
    figure::Figure,
    results::Report,
    share::{self, Share},
    share_targets::least_share,
    workload::Workload,
};

/// Of a bar and the gap beside it, in pixels.
const BAR: u32 = 22;
const BESIDES: u32 = 110;
/// Between the names and the bars.
const BEFORE: f64 = -1.0;
/// To the right of an equal share: the figures of the bars.
const MOST: f64 = 112.0;
/// Of a row of the chart, above and below its bar.
const GAP: f64 = 0.12;

/// One row of one workload.
pub struct Bar {
    row: String,
    name: String,
    share: f64,
    /// The target in percent.
    target: Option<f64>,
}

/// In the order of the workloads.
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
            share: row.medians.get(&Figure::LeastShare)?.median,
            target: least_share(share),
        })
    };
    rows.filter_map(bar).collect()
}

pub fn size(bars: &[Bar]) -> (u32, u32) {
    (860, BESIDES + BAR * bars.len() as u32)
}

pub fn draw(area: &Area<'_>, bars: &[Bar]) -> Result<(), Failure> {
    let title = "least share of a process, in percent of an equal one";
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(230)
        .build_cartesian_2d(BEFORE..MOST, 0.0..bars.len() as f64)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc("percent; a line is what is to be reached")
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
    let (before, behind) = (
        font(text_anchor::HPos::Right),
        font(text_anchor::HPos::Left),
    );
    for (at, bar) in bars.iter().enumerate() {
        // The first bar is at the top.
        let (top, bottom) = ((bars.len() - at) as f64, (bars.len() - at - 1) as f64);
        let middle = f64::midpoint(top, bottom);
        let corners = [(0.0, bottom + GAP), (bar.share, top - GAP)];
        chart.draw_series([Rectangle::new(corners, colour(&bar.row).filled())])?;
        let name = format!("{} {}", bar.name, bar.row);
        let share = format!("{:.0}", bar.share);
        chart.draw_series([
            Text::new(name, (BEFORE, middle), before.clone()),
            Text::new(share, (bar.share + 1.0, middle), behind.clone()),
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
        let [crowd, eight] = [Share::Crowd, share::MIXED_8_8].map(Workload::Share);
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
            .map(|bar| (bar.name.as_str(), bar.row.as_str(), bar.share, bar.target))
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
