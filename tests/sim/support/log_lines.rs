//! Records the log lines of the current thread.

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

/// A second subscriber. With a single one, tracing caches for each log line whether the first thread that reaches it wants it,
/// and tests run in several threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| {
    Dispatch::new(LogLines {
        lines: Arc::default(),
        level: Level::ERROR,
    })
});

/// Recorded lines. Each is a list of `field=value`.
#[derive(Clone)]
pub struct LogLines {
    lines: Arc<Mutex<Vec<String>>>,
    level: Level,
}

impl LogLines {
    /// Records the lines of this thread at `level` and above until the guard is dropped.
    pub fn record(level: Level) -> (Self, DefaultGuard) {
        LazyLock::force(&SECOND);
        let lines = Self {
            lines: Arc::default(),
            level,
        };
        (lines.clone(), tracing::subscriber::set_default(lines))
    }

    /// The lines that contain `part`.
    pub fn with(&self, part: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines
            .iter()
            .filter(|line| line.contains(part))
            .cloned()
            .collect()
    }
}

impl Subscriber for LogLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Fields::default();
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
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}
