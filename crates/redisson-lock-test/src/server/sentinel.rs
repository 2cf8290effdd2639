//! `SENTINEL`: the reports of a sentinel about its one master.

use super::{
    super::{
        Failure, Frame, Outcome,
        command::{Command, SESSION},
    },
    Caller,
    answers::text,
};
use crate::Address;

pub(super) const COMMANDS: &[Command] = &[
    Command::session("sentinel|master", 3, SESSION, master),
    Command::session("sentinel|get-master-addr-by-name", 3, SESSION, address),
    Command::session("sentinel|sentinels", 3, SESSION, sentinels),
    Command::session("sentinel|myid", 2, SESSION, my_id),
];

/// The state of a sentinel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentinelView {
    pub(crate) id: String,
    pub(crate) service: String,
    pub(crate) master: Address,
    /// The configuration epoch: grows with each failover.
    pub(crate) epoch: u64,
    pub(crate) replicas: usize,
    pub(crate) others: Vec<OtherSentinel>,
    /// A majority of the sentinels considers the master down.
    pub(crate) is_down: bool,
    /// This sentinel reconfigures the replicas for a new master.
    pub(crate) is_failing_over: bool,
}

/// Another sentinel of the same master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OtherSentinel {
    pub(crate) id: String,
    pub(crate) address: Address,
}

fn view<'a>(caller: &'a Caller<'_>) -> Result<&'a SentinelView, Failure> {
    let view = caller.server.settings.sentinel.as_ref();
    view.ok_or_else(|| "ERR unknown command 'SENTINEL', with args beginning with: ".into())
}

fn watched<'a>(caller: &'a Caller<'_>, service: &[u8]) -> Result<&'a SentinelView, Failure> {
    let view = view(caller)?;
    match view.service.as_bytes() == service {
        true => Ok(view),
        false => Err("ERR No such master with that name".into()),
    }
}

fn fields(pairs: &[(&str, &str)]) -> Frame {
    let pairs = pairs.iter().map(|(name, value)| (text(name), text(value)));
    Frame::Map(pairs.collect())
}

fn master(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    let view = watched(caller, args[0])?;
    let mut flags = String::from("master");
    for (is_set, flag) in [
        (view.is_down, ",s_down,o_down"),
        (view.is_failing_over, ",failover_in_progress"),
    ] {
        flags.push_str(if is_set { flag } else { "" });
    }
    Ok(fields(&[
        ("name", &view.service),
        ("ip", &view.master.0),
        ("port", &view.master.1.to_string()),
        ("flags", &flags),
        ("config-epoch", &view.epoch.to_string()),
        ("num-slaves", &view.replicas.to_string()),
        ("num-other-sentinels", &view.others.len().to_string()),
    ]))
}

/// `None` for an unknown service.
fn address(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    let view = view(caller)?;
    if view.service.as_bytes() != args[0] {
        return Ok(Frame::Null);
    }
    let (host, port) = &view.master;
    Ok(Frame::List(vec![text(host), text(&port.to_string())]))
}

fn sentinels(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    let others = watched(caller, args[0])?.others.iter();
    let others = others.map(|other| {
        let (host, port) = &other.address;
        fields(&[
            ("name", &other.id),
            ("ip", host),
            ("port", &port.to_string()),
            ("runid", &other.id),
        ])
    });
    Ok(Frame::List(others.collect()))
}

fn my_id(caller: &mut Caller<'_>, _args: &[&[u8]]) -> Outcome {
    Ok(text(&view(caller)?.id))
}
