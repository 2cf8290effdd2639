//! The names of this crate's clients at a server, from its list of connections.

use std::{collections::BTreeMap, sync::Arc};

use uuid::Uuid;

use super::{client_info::field, frame, script_connection::ScriptSession};
use crate::{server_text, wire::Refusal};

/// Names of clients, by their ids.
pub type ClientNames = BTreeMap<Uuid, Arc<str>>;

/// Asks by `session`. `None` if the server refuses to tell, or ends the connection: it is not asked again.
pub(super) async fn ask(session: Arc<ScriptSession>) -> Option<ClientNames> {
    let answer = session.send("CLIENT", vec!["LIST".into()]).await.ok()?;
    match frame::error(&answer).map(Refusal::from_message) {
        Some(Refusal::Transient { .. }) => Some(ClientNames::new()),
        Some(_) => None,
        None => Some(read(&frame::text(&answer)?)),
    }
}

/// A connection of this crate is named `<name>/<client id>`. Other connections may have any name.
fn read(list: &str) -> ClientNames {
    let named = |line| {
        let (name, id) = field(line, "name")?.rsplit_once('/')?;
        let id = Uuid::try_parse(id).ok().filter(|_| !name.is_empty())?;
        Some((id, server_text::shown(name).into()))
    };
    list.lines().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_crates_connections_are_read() {
        let id = "0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d";
        let list = format!(
            "id=3 addr=127.0.0.1:1 fd=8 name=orders-7 age=5\n\
             id=4 addr=127.0.0.1:2 fd=9 name=a/b@c/{id} age=5\n\
             id=5 addr=127.0.0.1:3 fd=9 name=/{id} age=5\n\
             id=6 addr=127.0.0.1:3 fd=9 name=x/{id}0 age=5\n\
             id=7 addr=127.0.0.1:3 fd=9 name= age=5\nno line\n"
        );
        let names = read(&list);
        assert_eq!(names.len(), 1);
        assert_eq!(&*names[&Uuid::try_parse(id).unwrap()], "a/b@c");
    }
}
