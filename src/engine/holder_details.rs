//! What the server's list of holders lacks: the names of their clients, and since when owners of this client hold the lock.

use tokio::time::timeout;
use uuid::Uuid;

use super::Engine;
use crate::{
    redis::ClientNames,
    since::Since,
    sync::{Mutex, lock},
    wire::{
        HoldMode, LockSpec,
        holders::{Holder, MOST_LISTED},
    },
};

/// The names of other clients that hold locks, as far as this client has asked for them.
#[derive(Default)]
pub(super) struct KnownClients(Mutex<Known>);

#[derive(Default)]
struct Known {
    names: ClientNames,
    /// The server does not tell names: it is not asked again.
    is_refused: bool,
}

impl Engine {
    /// Adds what is known of the holders. Asks for names only where one is missing: the list of connections may be long.
    pub(super) async fn describe(&self, spec: &LockSpec, holders: &mut [Holder]) {
        let own = self.owners.tenures(Some(&spec.name));
        for holder in holders.iter_mut() {
            let is_it = own.iter().find(|tenure| {
                let writes = tenure.spec.mode == HoldMode::Write;
                holder.owner.as_bytes() == &tenure.entry().field[..] && holder.writes == writes
            });
            if let Some(tenure) = is_it {
                holder.since = Since::At(tenure.since.into_std());
            }
        }
        drop(own);
        self.ask_for_names(spec, holders).await;
        let known = lock(&self.known_clients.0);
        for holder in holders {
            let Some(id) = holder.client_id() else {
                continue;
            };
            holder.client_name = match id == self.id {
                true => Some(self.config.shown_client_name().into()),
                false => known.names.get(&id).cloned(),
            };
        }
    }

    async fn ask_for_names(&self, spec: &LockSpec, holders: &[Holder]) {
        // A client of Java has no id in its name.
        let others = holders.iter().filter(|holder| holder.is_of_this_crate());
        let mut others: Vec<Uuid> = others.filter_map(Holder::client_id).collect();
        let is_new = |id: &Uuid, known: &Known| *id != self.id && !known.names.contains_key(id);
        {
            let known = lock(&self.known_clients.0);
            others.retain(|id| is_new(id, &known));
            if others.is_empty() || known.is_refused {
                return;
            }
        }
        let Some(asking) = self.batcher.redis().client_names(&spec.key) else {
            return;
        };
        let Ok(told) = timeout(self.config.command_wait, asking).await else {
            return;
        };
        let mut known = lock(&self.known_clients.0);
        match told {
            Some(mut told) => {
                told.retain(|id, _| others.contains(id));
                if known.names.len() + told.len() > MOST_LISTED {
                    known.names.clear();
                }
                known.names.extend(told);
            }
            None => known.is_refused = true,
        }
    }
}
