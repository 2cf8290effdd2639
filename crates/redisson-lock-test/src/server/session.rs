//! The server's state of a connection.

use super::{super::ConnectionId, super::subscriptions::Kind, Server};

#[derive(Debug, Clone, Default)]
pub(super) struct Session {
    address: String,
    pub(super) name: String,
    /// The name and version of the client's library.
    pub(super) library: [String; 2],
    pub(super) resp: u8,
    /// The user, once logged in.
    pub(super) user: Option<String>,
    pub(super) database: usize,
    pub(super) opened_at: u64,
    pub(super) last_used_at: u64,
    pub(super) last_command: &'static str,
    pub(super) no_evict: bool,
    /// The last command was `ASKING`.
    pub(super) asking: bool,
    /// The number of channels, patterns and shard channels.
    pub(super) subscribed: [usize; 3],
}

impl Session {
    pub(super) fn new(address: &str, is_open: bool, now: u64) -> Self {
        Self {
            address: address.to_owned(),
            resp: 2,
            user: is_open.then(|| "default".to_owned()),
            opened_at: now,
            last_used_at: now,
            last_command: "NULL",
            ..Self::default()
        }
    }

    /// The state after `RESET`.
    pub(super) fn reset(&mut self, is_open: bool) {
        *self = Self {
            opened_at: self.opened_at,
            last_used_at: self.last_used_at,
            last_command: self.last_command,
            library: std::mem::take(&mut self.library),
            ..Self::new(&self.address, is_open, 0)
        };
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn is_subscriber(&self) -> bool {
        self.subscribed != [0; 3]
    }

    /// A subscriber of RESP2 may use few other commands.
    pub(super) fn is_limited(&self) -> bool {
        self.resp < 3 && self.is_subscriber()
    }

    fn flags(&self) -> String {
        let flags = [(self.is_subscriber(), 'P'), (self.no_evict, 'e')];
        let flags: String = flags
            .iter()
            .filter(|(set, _)| *set)
            .map(|(_, flag)| flag)
            .collect();
        if flags.is_empty() { "N".into() } else { flags }
    }
}

impl Server {
    /// A line of `CLIENT LIST`. The sizes of buffers are constants.
    pub(super) fn describe(&self, id: ConnectionId, session: &Session, now: u64) -> String {
        let seconds_since = |then: u64| now.saturating_sub(then) / 1000;
        let [sub, psub, ssub] = session.subscribed;
        format!(
            "id={id} addr={addr} laddr={laddr} fd={fd} name={name} age={age} idle={idle} flags={flags} db={db} \
            sub={sub} psub={psub} ssub={ssub} multi=-1 qbuf=26 qbuf-free=20448 argv-mem=10 multi-mem=0 rbs=1024 \
            rbp=0 obl=0 oll=0 omem=0 tot-mem=22298 events=r cmd={cmd} user={user} redir=-1 resp={resp}\n",
            id = id.0,
            addr = session.address,
            laddr = self.settings.address,
            fd = id.0 + 7,
            name = session.name,
            age = seconds_since(session.opened_at),
            idle = seconds_since(session.last_used_at),
            flags = session.flags(),
            db = session.database,
            cmd = session.last_command,
            user = session.user.as_deref().unwrap_or("default"),
            resp = session.resp,
        )
    }
}

impl Kind {
    /// The index of the kind in [`Session::subscribed`].
    pub(super) fn index(self) -> usize {
        match self {
            Kind::Channel => 0,
            Kind::Pattern => 1,
            Kind::Shard => 2,
        }
    }
}
