//! The style of all charts.

use plotters::{coord::Shift, prelude::*};

use crate::peers::{self, MIXED};

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub const FONT: &str = "sans-serif";
/// Paul Tol's palette, which colour-blind readers can tell apart. This crate has its strongest
/// colour.
const COLOURS: [RGBColor; 10] = [
    RGBColor(204, 51, 17),
    RGBColor(0, 119, 187),
    RGBColor(51, 187, 238),
    RGBColor(90, 90, 90),
    RGBColor(238, 119, 51),
    RGBColor(0, 153, 136),
    RGBColor(238, 51, 119),
    RGBColor(136, 34, 85),
    RGBColor(153, 153, 51),
    RGBColor(170, 170, 170),
];

const OF_BOTH: RGBColor = RGBColor(170, 51, 119);

pub fn colour(peer: &str) -> RGBColor {
    if peer == MIXED {
        return OF_BOTH;
    }
    let at = peers::ALL.iter().position(|name| *name == peer);
    COLOURS[at.unwrap_or(0) % COLOURS.len()]
}
