//! Servers that alternate as masters and replicas: their views of each other, and the promotion of a replica.

use tokio::time::Instant;

use super::{
    Refusal, Role,
    faults::MasterChange,
    network::{PipeId, State},
    pipe::Pipe,
};
use crate::Address;

impl State {
    /// Lets replicas apply the snapshots that have arrived.
    pub(super) fn catch_up(&mut self, now: Instant) {
        let replication = self.replication.as_mut();
        let arrived = replication.map_or_else(Vec::new, |replication| replication.catch_up(now));
        for (address, keys) in arrived {
            if let Some(host) = self.servers.get_mut(&address) {
                host.server.data.restore(&keys);
            }
        }
    }

    /// Sends a snapshot of a server to its replicas after a write.
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

    /// The number of replicas that have acknowledged a connection's writes.
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

    /// Updates a server's state for its next reply.
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

    /// Promotes a replica, with the data that it has received from `old`. From then on no replica follows the old master: together with
    /// a replica it would still be a majority, and no durability would keep its later grants.
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

    /// Makes a server a replica of `master`. A former master ends its connections; the first snapshot replaces its data.
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

    /// Wakes the tasks of a server's connections.
    pub(super) fn wake(&mut self, address: &Address) {
        let pipes = self.pipes.values_mut();
        pipes
            .filter(|pipe| pipe.address == *address)
            .for_each(Pipe::wake);
    }
}
