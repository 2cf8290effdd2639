//! The charts, as SVG on white.

use std::{fs, path::Path};

use compare::Failure;
use plotters::{prelude::*, style::text_anchor};

use crate::{
    chart_style::{Area, FONT, colour},
    figure::Figure,
    peers::{self, OURS},
    results::Report,
    share_chart,
    tables::number,
    workload::{Workload, pair},
};

/// A peer, and its median for each number of tasks.
type Line = (String, Vec<(f64, f64)>);

const SIZE: (u32, u32) = (860, 520);
/// The factor by which the axis exceeds the figures: the names of the peers need the space.
const LEGEND: f64 = 5.0;
/// Draws the charts for which the report has figures.
pub fn draw(report: &Report, folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    let own: Vec<_> = [1, 8, 64, 256, 1000]
        .map(|tasks| (tasks, pair(tasks)))
        .into();
    let shared: Vec<_> = [2, 16, 64, 1000]
        .map(|tasks| (tasks, Workload::OneKey { tasks }))
        .into();
    let over_tasks = [
        ("pairs.svg", "lock + unlock, a key for each task", own),
        (
            "one-key.svg",
            "lock + unlock, one key for all tasks",
            shared,
        ),
    ];
    for (file, title, workloads) in over_tasks {
        let lines = lines(report, &workloads);
        if !lines.is_empty() {
            drawn(&folder.join(file), SIZE, |area| {
                over_tasks_chart(area, title, &lines)
            })?;
        }
    }
    let bars = [
        ("pair-p50.svg", "lock + unlock by one task, median", pair(1)),
        (
            "hand-off.svg",
            "unlock() in one process until lock() in another, median",
            Workload::HandOff,
        ),
    ];
    for (file, title, workload) in bars {
        let bars = medians(report, workload);
        if !bars.is_empty() {
            drawn(&folder.join(file), SIZE, |area| {
                bar_chart(area, title, &bars)
            })?;
        }
    }
    for (kind, bars) in [
        (share_chart::SHARES, share_chart::bars(report)),
        (share_chart::LONE, share_chart::lone(report)),
    ] {
        if !bars.is_empty() {
            drawn(&folder.join(kind.file), share_chart::size(&bars), |area| {
                share_chart::draw(area, &kind, &bars)
            })?;
        }
    }
    Ok(())
}

fn drawn(
    file: &Path,
    size: (u32, u32),
    chart: impl FnOnce(&Area<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        chart(&area)?;
        area.present()?;
    }
    Ok(fs::write(file, svg)?)
}

fn lines(report: &Report, workloads: &[(usize, Workload)]) -> Vec<Line> {
    let line = |peer: &str| -> Line {
        let points = workloads.iter().filter_map(|(tasks, workload)| {
            let median = report.median(*workload, peer, Figure::PerSecond)?;
            (median > 0.0).then_some((*tasks as f64, median))
        });
        (peer.to_owned(), points.collect())
    };
    let all = peers::ALL.into_iter().map(line);
    all.filter(|(_, points)| !points.is_empty()).collect()
}

/// The median of each peer in microseconds, the quickest first.
fn medians(report: &Report, workload: Workload) -> Vec<(String, f64)> {
    let peers = peers::ALL.into_iter();
    let medians =
        peers.filter_map(|peer| Some((peer, report.median(workload, peer, Figure::P50)?)));
    let mut medians: Vec<_> = medians
        .map(|(peer, micros)| (peer.to_owned(), micros))
        .collect();
    medians.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    medians
}

fn over_tasks_chart(area: &Area<'_>, title: &str, lines: &[Line]) -> Result<(), Failure> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let extremes = |values: Vec<f64>| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        (least, values.into_iter().fold(0.0, f64::max))
    };
    let (left, right) = extremes(points().map(|(tasks, _)| *tasks).collect());
    let (low, high) = extremes(points().map(|(_, rate)| *rate).collect());
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(74)
        .build_cartesian_2d(
            (left / 1.1..right * LEGEND).log_scale(),
            (low / 1.5..high * 1.5).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("tasks (log scale)")
        .y_desc("pairs per second (log scale)")
        .axis_desc_style((FONT, 15))
        .label_style((FONT, 13))
        .x_label_formatter(&|tasks| format!("{tasks:.0}"))
        .y_label_formatter(&|rate| format!("{rate:.0}"))
        .light_line_style(WHITE)
        .draw()?;
    for (peer, points) in lines {
        let width = if peer == OURS { 4 } else { 2 };
        let style = colour(peer).stroke_width(width);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style).point_size(width + 1))?
            .label(peer)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 13))
        .draw()?;
    Ok(())
}

/// Logarithmic, because a lock that polls takes hundreds of times as long as one that is notified.
fn bar_chart(area: &Area<'_>, title: &str, bars: &[(String, f64)]) -> Result<(), Failure> {
    let logs = || bars.iter().map(|(_, micros)| micros.log10());
    let low = logs().fold(f64::INFINITY, f64::min).floor();
    let high = logs().fold(f64::NEG_INFINITY, f64::max).ceil();
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(130)
        .build_cartesian_2d(low..high + 0.3, (0..bars.len() - 1).into_segmented())?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc("microseconds (log scale)")
        .axis_desc_style((FONT, 15))
        .label_style((FONT, 13))
        .x_labels(6)
        .x_label_formatter(&|log| format!("{:.0}", 10_f64.powf(*log)))
        .y_label_formatter(&|segment| match segment {
            SegmentValue::CenterOf(at) => bars.get(*at).map_or("", |(peer, _)| peer).to_owned(),
            _ => String::new(),
        })
        .light_line_style(WHITE)
        .draw()?;
    let anchor = text_anchor::Pos::new(text_anchor::HPos::Left, text_anchor::VPos::Center);
    let font = (FONT, 13).into_text_style(area).pos(anchor);
    for (at, (peer, micros)) in bars.iter().enumerate() {
        let end = micros.log10();
        let corners = [
            (low, SegmentValue::Exact(at)),
            (end, SegmentValue::Exact(at + 1)),
        ];
        let mut bar = Rectangle::new(corners, colour(peer).filled());
        bar.set_margin(5, 5, 0, 0);
        chart.draw_series([bar])?;
        let label = format!("  {}", time(*micros));
        let place = (end, SegmentValue::CenterOf(at));
        chart.draw_series([Text::new(label, place, font.clone())])?;
    }
    Ok(())
}

fn time(micros: f64) -> String {
    match micros {
        micros if micros < 10_000.0 => format!("{} us", number(micros)),
        micros => format!("{} ms", number(micros / 1e3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{peers::MIXED, results::tests::report, share};

    #[test]
    fn each_peer_that_has_figures_is_in_the_charts() {
        let measured = report(&[
            (pair(1), OURS, Figure::PerSecond, 6000.0),
            (pair(64), OURS, Figure::PerSecond, 90_000.0),
            (pair(8), "fred", Figure::PerSecond, 50_000.0),
            (Workload::HandOff, OURS, Figure::P50, 226.0),
            (Workload::HandOff, "redsync", Figure::P50, 90_000.0),
            (
                Workload::Share(share::CROWD_1MS),
                MIXED,
                Figure::LeastShare,
                41.0,
            ),
        ]);
        let folder = std::env::temp_dir().join(testbed::unique_name("charts").replace(':', "-"));
        draw(&measured, &folder).expect("charts can be drawn");
        let svg = |name: &str| fs::read_to_string(folder.join(name));
        let pairs = svg("pairs.svg").expect("there are figures");
        for word in ["ours", "fred", "pairs per second", "tasks"] {
            assert!(pairs.contains(word), "{word} in {pairs}");
        }
        assert!(!pairs.contains("redsync"));
        let hand_off = svg("hand-off.svg").expect("there are figures");
        for word in ["redsync", "226 us", "90.0 ms", "microseconds"] {
            assert!(hand_off.contains(word), "{word} in {hand_off}");
        }
        let shares = svg("shares.svg").expect("there are figures");
        for word in ["share-crowd mixed", "41", "percent"] {
            assert!(shares.contains(word), "{word} in {shares}");
        }
        assert!(svg("one-key.svg").is_err(), "nothing was measured for it");
        fs::remove_dir_all(folder).expect("the charts can be removed");
    }
}
