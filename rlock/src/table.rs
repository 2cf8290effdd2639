//! Tables and colours.

use std::io::{IsTerminal, stdout};

/// A table whose columns are as wide as their content.
pub struct Table<const N: usize> {
    headings: [&'static str; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub fn new(headings: &[&'static str; N]) -> Self {
        Self {
            headings: *headings,
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(self.headings[column].len())
        };
        let widths: Vec<_> = (0..N).map(width).collect();
        let line = |cells: [&str; N]| {
            let cells = cells.iter().zip(&widths);
            let padded: Vec<_> = cells
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            padded.join("  ").trim_end().to_owned()
        };
        let mut lines = vec![Paint::Bold.on(&line(self.headings))];
        let rows = self.rows.iter();
        lines.extend(rows.map(|row| line(std::array::from_fn(|at| &*row[at]))));
        lines.join("\n")
    }
}

/// A text style, applied on a terminal unless `NO_COLOR` is set.
#[derive(Clone, Copy)]
pub enum Paint {
    Bold,
    Green,
    Yellow,
    Red,
}

impl Paint {
    pub fn on(self, text: &str) -> String {
        let code = match self {
            Self::Bold => 1,
            Self::Green => 32,
            Self::Yellow => 33,
            Self::Red => 31,
        };
        match has_colours() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// Whether the output has colours: <https://no-color.org>.
pub fn has_colours() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && stdout().is_terminal()
}
