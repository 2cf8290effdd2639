//! What this thread logs.

use std::{
    fmt,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::DefaultGuard,
};

/// With one subscriber only, tracing asks the thread that comes by a line first whether it is wanted, and believes
/// that for ever. Tests have threads of their own.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| {
    Dispatch::new(Lines {
        lines: Arc::default(),
        level: Level::ERROR,
    })
});

/// Lines of the log, each its fields one after the other.
#[derive(Clone)]
pub struct Lines {
    lines: Arc<Mutex<Vec<String>>>,
    level: Level,
}

impl Lines {
    /// Keeps what this thread logs at `level` and above until the guard is dropped.
    pub fn keep_from(level: Level) -> (Self, DefaultGuard) {
        LazyLock::force(&ANOTHER);
        let lines = Self {
            lines: Arc::default(),
            level,
        };
        (lines.clone(), tracing::subscriber::set_default(lines))
    }

    pub fn with(&self, part: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines
            .iter()
            .filter(|line| line.contains(part))
            .cloned()
            .collect()
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}
