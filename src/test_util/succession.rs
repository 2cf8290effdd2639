//! Servers that are masters and replicas by turns: what they know of each other, and how one takes over.

use tokio::time::Instant;

use super::{
    Refusal, Role,
    faults::MasterChange,
    network::{PipeId, State},
    pipe::Pipe,
};
use crate::redis::endpoint::Address;

impl State {
    /// Has replicas apply what has arrived.
    pub(super) fn catch_up(&mut self, now: Instant) {
        let replication = self.replication.as_mut();
        let arrived = replication.map_or_else(Vec::new, |replication| replication.catch_up(now));
        for (address, keys) in arrived {
            if let Some(host) = self.servers.get_mut(&address) {
                host.server.data.restore(&keys);
            }
        }
    }

    /// Sends what a server has after a write to its replicas.
    pub(super) fn replicate(&mut self, address: &Address, writer: Option<PipeId>, now: Instant) {
        let (Some(replication), Some(host)) = (&mut self.replication, self.servers.get(address))
        else {
            return;
        };
        let written = replication.send(address, host.server.data.snapshot(), now);
        let writer = writer.and_then(|writer| self.pipes.get_mut(&writer));
        if let Some(writer) = writer {
            writer.written = written;
        }
    }

    /// How many replicas have acknowledged what a connection wrote.
    pub(super) fn acknowledged(&mut self, pipe: PipeId, now: Instant) -> usize {
        self.catch_up(now);
        let Some(pipe) = self.pipes.get(&pipe) else {
            return 0;
        };
        match &mut self.replication {
            Some(replication) => replication.acknowledged(&pipe.address, pipe.written),
            None => {
                let host = self.servers.get(&pipe.address);
                host.map_or(0, |host| {
                    host.server.settings.acknowledging_replicas as usize
                })
            }
        }
    }

    /// Sees to it that a server knows what it is about to be asked.
    pub(super) fn prepare(&mut self, pipe: PipeId, command: &str, now: Instant) {
        if self.replication.is_none() {
            return;
        }
        let acknowledged = self.acknowledged(pipe, now);
        let (Some(replication), Some(pipe)) = (&mut self.replication, self.pipes.get(&pipe)) else {
            return;
        };
        let Some(host) = self.servers.get_mut(&pipe.address) else {
            return;
        };
        let settings = &mut host.server.settings;
        let reports = matches!(command, "ROLE" | "INFO" | "WAIT");
        if !matches!(settings.role, Role::Master { .. })
            || settings.sentinel.is_some()
            || !(reports || replication.min_replicas > 0)
        {
            return;
        }
        let (offset, replicas) = replication.report(&pipe.address);
        let too_few = replicas.len() < replication.min_replicas;
        settings.refusal = too_few.then_some(Refusal::NoReplicas);
        settings.acknowledging_replicas = acknowledged as u32;
        settings.role = Role::Master { offset, replicas };
    }

    /// Makes a replica the master, with what has reached it of `old`'s data. From then on no replica listens to the old one,
    /// which with a replica that has not been told yet would be a majority: what it grants then, no durability keeps.
    pub(super) fn promote(&mut self, replica: &Address, old: &Address, now: Instant) {
        self.catch_up(now);
        let millis = self.millis(now);
        if let Some(replication) = &mut self.replication {
            let offset = replication.detach(replica).unwrap_or_default();
            replication.begin(replica, offset);
            replication.sever(old);
        }
        let before = self
            .servers
            .get(old)
            .map(|host| host.server.data.snapshot());
        let Some(host) = self.servers.get_mut(replica) else {
            return;
        };
        host.server.settings.role = Role::default();
        let present = host.server.data.snapshot();
        let differing = before.map_or_else(Vec::new, |before| before.differing(&present, millis));
        let text = |key: &bytes::Bytes| String::from_utf8_lossy(key).into_owned();
        self.faults.master_changed(&MasterChange::Promoted {
            differing: differing.iter().map(text).collect(),
        });
    }

    /// Makes a server a replica of `master`. One that was a master ends its connections; its data is replaced as soon as that
    /// of the new one arrives.
    pub(super) fn follow(&mut self, replica: &Address, master: &Address, now: Instant) {
        self.catch_up(now);
        if self.is_master(replica) {
            self.disconnect(Some(replica));
        }
        let (host, port) = master.clone();
        let Some(keys) = self
            .servers
            .get(master)
            .map(|host| host.server.data.snapshot())
        else {
            return;
        };
        if let Some(follower) = self.servers.get_mut(replica) {
            follower.server.settings.refusal = None;
            follower.server.settings.role = Role::Replica {
                host,
                port,
                link: "connected",
                offset: 0,
            };
        }
        if let Some(replication) = &mut self.replication {
            replication.end(replica);
            replication.attach(master, replica, keys, now);
        }
        self.wake(master);
    }

    pub(super) fn is_master(&self, address: &Address) -> bool {
        let host = self.servers.get(address);
        host.is_some_and(|host| matches!(host.server.settings.role, Role::Master { .. }))
    }

    /// Has the connections to a server looked at again.
    pub(super) fn wake(&mut self, address: &Address) {
        let pipes = self.pipes.values_mut();
        pipes
            .filter(|pipe| pipe.address == *address)
            .for_each(Pipe::wake);
    }
}
