//! What is measured.

/// The kinds of lock that are compared with Redisson's of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    Reentrant,
    Fair,
    Read,
    Write,
    Fenced,
}

impl LockKind {
    const ALL: [Self; 5] = [
        Self::Reentrant,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Fenced,
    ];

    /// The Java program knows it by the same word.
    pub fn text(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Fenced => "fenced",
        }
    }

    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.text() == text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// `lock()` and `unlock()` by that many tasks, each on a key of its own.
    Pair { kind: LockKind, tasks: usize },
    /// `unlock()` by one client until the `lock()` that waits in another returns.
    Handoff,
    /// From one to the next of those who wait in the queue of a fair lock, in two processes.
    Queue,
}

/// What the clients send for it is listened to as well.
pub const FIRST: Workload = pair(LockKind::Reentrant, 1);

pub const ALL: [Workload; 11] = [
    FIRST,
    pair(LockKind::Reentrant, 8),
    pair(LockKind::Reentrant, 64),
    pair(LockKind::Reentrant, 256),
    Workload::Handoff,
    pair(LockKind::Fair, 1),
    pair(LockKind::Read, 1),
    pair(LockKind::Write, 1),
    pair(LockKind::Fenced, 1),
    pair(LockKind::Read, 64),
    Workload::Queue,
];

pub const fn pair(kind: LockKind, tasks: usize) -> Workload {
    Workload::Pair { kind, tasks }
}

impl Workload {
    /// What it is called on the command line and in the lines about progress.
    pub fn name(self) -> String {
        match self {
            Self::Pair {
                kind: LockKind::Reentrant,
                tasks,
            } => format!("pair-{tasks}"),
            Self::Pair { kind, tasks } => format!("{}-{tasks}", kind.text()),
            Self::Handoff => "hand-off".into(),
            Self::Queue => "queue".into(),
        }
    }

    pub fn title(self) -> String {
        match self {
            Self::Pair { kind, tasks } => {
                let what = match kind {
                    LockKind::Reentrant => "lock + unlock".to_owned(),
                    _ => format!("{} lock + unlock", kind.text()),
                };
                match tasks {
                    1 => format!("{what}, 1 task"),
                    _ => format!("{what}, {tasks} tasks, a key each"),
                }
            }
            Self::Handoff => {
                "hand-off: unlock() of one client until the waiting lock() of another returns".into()
            }
            Self::Queue => {
                "fair hand-off: unlock() of one until lock() of the next returns, 8 waiters in each of 2 processes"
                    .into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_workloads_apart() {
        let mut names: Vec<String> = ALL.into_iter().map(Workload::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert_eq!(pair(LockKind::Read, 64).name(), "read-64");
        assert_eq!(LockKind::read("write"), Some(LockKind::Write));
        assert_eq!(LockKind::read("spin"), None);
    }
}
