//! A table that redraws, on a terminal.

use std::{collections::BTreeSet, time::Duration};

use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Color, Modifier, Style},
    text::Line,
    widgets::{Cell, Row, Table},
};
use tokio::sync::mpsc;

use super::{Look, changes};
use crate::{Done, Failure, entry::Entry, exit, ls, signals::Signals, table::has_colours};

/// The content of the screen.
struct Screen {
    pattern: String,
    locks: Vec<Entry>,
    /// The names of the locks that changed since the last look, in their holders or waiters.
    changed: BTreeSet<String>,
    trouble: Option<String>,
    first_row: usize,
    has_colours: bool,
}

/// The action that a key requests.
enum Command {
    Quit,
    Redraw,
}

pub async fn show(
    pattern: String,
    first: Vec<Entry>,
    looks: mpsc::Receiver<Look>,
    signals: &mut Signals,
) -> Result<Done, Failure> {
    let screen = Screen {
        pattern,
        locks: first,
        changed: BTreeSet::new(),
        trouble: None,
        first_row: 0,
        has_colours: has_colours(),
    };
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let shown = keep(screen, looks, &mut terminal, signals).await;
    ratatui::restore();
    shown
}

fn failed(error: std::io::Error) -> Failure {
    Failure {
        code: exit::FAILED,
        message: format!("the terminal cannot be set up: {error}"),
    }
}

async fn keep(
    mut screen: Screen,
    mut looks: mpsc::Receiver<Look>,
    terminal: &mut DefaultTerminal,
    signals: &mut Signals,
) -> Result<Done, Failure> {
    let mut events = events();
    loop {
        terminal.draw(|frame| screen.draw(frame)).map_err(failed)?;
        tokio::select! {
            code = signals.ending() => return Ok(Done::Code(code)),
            event = events.recv() => match event.map(|event| screen.takes(&event)) {
                None | Some(Some(Command::Quit)) => return Ok(Done::Code(0)),
                Some(Some(Command::Redraw) | None) => {}
            },
            look = looks.recv() => match look {
                Some(look) => screen.take(look.locks)?,
                None => return Ok(Done::Code(0)),
            },
        }
    }
}

/// Receives keys and changes of the terminal's size. Ends with the terminal.
fn events() -> mpsc::UnboundedReceiver<Event> {
    let (sender, events) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    events
}

impl Screen {
    fn take(&mut self, locks: Result<Vec<Entry>, Failure>) -> Result<(), Failure> {
        match locks {
            Ok(locks) => {
                let changes = changes(&self.locks, &locks, Duration::ZERO);
                self.changed = changes.into_iter().map(|change| change.name).collect();
                self.locks = locks;
                self.trouble = None;
            }
            Err(failure) if failure.code == exit::UNAVAILABLE => {
                self.trouble = Some(failure.message);
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    fn takes(&mut self, event: &Event) -> Option<Command> {
        let Event::Key(key) = event else {
            return Some(Command::Redraw);
        };
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let by = |rows: isize| self.first_row.saturating_add_signed(rows);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Command::Quit),
            KeyCode::Char('c') if is_control => return Some(Command::Quit),
            KeyCode::Up => self.first_row = by(-1),
            KeyCode::Down => self.first_row = by(1),
            KeyCode::PageUp => self.first_row = by(-10),
            KeyCode::PageDown => self.first_row = by(10),
            KeyCode::Home => self.first_row = 0,
            _ => return None,
        }
        Some(Command::Redraw)
    }

    fn coloured(&self, colour: Color) -> Style {
        match self.has_colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    fn draw(&mut self, frame: &mut Frame) {
        let [top, middle, bottom] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let waiting: u64 = self.locks.iter().map(Entry::waiting).sum();
        let pattern = self.pattern.escape_debug();
        let title = format!(
            "rlock watch {pattern}   locks: {}   waiting: {waiting}",
            self.locks.len()
        );
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Line::styled(title, bold), top);

        let rows: Vec<_> = self
            .locks
            .iter()
            .flat_map(|lock| {
                let style = self.style_of(lock);
                ls::rows(lock).into_iter().map(move |row| (row, style))
            })
            .collect();
        self.first_row = self.first_row.min(rows.len().saturating_sub(1));
        let widths: [u16; ls::COLUMNS] = std::array::from_fn(|column| {
            let cells = rows.iter().map(|(row, _)| row[column].chars().count());
            let widest = cells.max().unwrap_or(0).max(ls::HEADINGS[column].len());
            u16::try_from(widest).unwrap_or(u16::MAX)
        });
        let shown = rows.into_iter().skip(self.first_row);
        let shown = shown.map(|(row, style)| Row::new(row.map(Cell::from)).style(style));
        let table = Table::new(shown, widths.map(Constraint::Max))
            .header(Row::new(ls::HEADINGS).style(bold))
            .column_spacing(2);
        frame.render_widget(table, middle);

        let foot = match &self.trouble {
            Some(trouble) => Line::styled(trouble.clone(), self.coloured(Color::Red)),
            None => Line::raw("q: quit   arrows: scroll"),
        };
        frame.render_widget(foot, bottom);
    }

    fn style_of(&self, lock: &Entry) -> Style {
        if lock.holders.is_empty() {
            self.coloured(Color::Yellow)
        } else if self.changed.contains(&lock.name) {
            self.coloured(Color::Green)
        } else {
            Style::new()
        }
    }
}
