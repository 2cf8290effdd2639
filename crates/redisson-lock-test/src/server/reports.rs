//! The reports of a server about itself.

use std::fmt::Write as _;

use super::{
    super::{
        Failure, Frame, Outcome,
        number::{integer, parse_integer},
    },
    Caller, Role, Settings, VERSION,
    answers::{count, text},
};

fn offset(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

pub(super) fn role(caller: &mut Caller<'_>, _args: &[&[u8]]) -> Outcome {
    Ok(Frame::List(match &caller.server.settings.role {
        Role::Master {
            offset: own,
            replicas,
        } => {
            let replicas = replicas.iter().map(|replica| {
                let (port, offset) = (replica.port.to_string(), replica.offset.to_string());
                Frame::List(vec![text(&replica.host), text(&port), text(&offset)])
            });
            let replicas = Frame::List(replicas.collect());
            vec![text("master"), Frame::Number(offset(*own)), replicas]
        }
        Role::Replica {
            host,
            port,
            link,
            offset: own,
        } => vec![
            text("slave"),
            text(host),
            Frame::Number((*port).into()),
            text(link),
            Frame::Number(offset(*own)),
        ],
    }))
}

/// Replies at once: the number of replicas is a setting.
pub(super) fn wait(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    if let Role::Replica { .. } = caller.server.settings.role {
        return Err(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a \
            replica is configured to be writable (which is not the default) writes to replicas are just local and \
            are not propagated."
                .into(),
        );
    }
    parse_integer(args[0])?;
    check_timeout(args[1])?;
    Ok(Frame::Number(
        caller.server.settings.acknowledging_replicas.into(),
    ))
}

fn check_timeout(given: &[u8]) -> Result<(), Failure> {
    match integer(given) {
        Some(0..) => Ok(()),
        Some(_) => Err("ERR timeout is negative".into()),
        None => Err("ERR timeout is not an integer or out of range".into()),
    }
}

/// Returns no commands: clients only use it to find keys in arguments.
pub(super) fn command(_caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    match args {
        [] => Ok(Frame::List(Vec::new())),
        [word] if word.eq_ignore_ascii_case(b"count") => {
            Ok(count(super::super::command::all().count()))
        }
        _ => Err("ERR COMMAND takes no arguments in the in-memory Redis".into()),
    }
}

pub(super) fn info(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    let server = &caller.server;
    let wants = |section: &str| {
        let everything = [section, "all", "default", "everything"];
        let is = |arg: &&[u8]| {
            everything
                .iter()
                .any(|name| arg.eq_ignore_ascii_case(name.as_bytes()))
        };
        args.is_empty() || args.iter().any(is)
    };
    let mut sections = Vec::new();
    if wants("server") {
        let address = &server.settings.address;
        let run_id: String = address.bytes().map(|byte| format!("{byte:02x}")).collect();
        sections.push(format!(
            "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nprocess_id:1\r\nrun_id:{run_id:0<40.40}\r\n\
             tcp_port:{}\r\n",
            address.rsplit(':').next().unwrap_or_default(),
        ));
    }
    if wants("clients") {
        let connected = server.connections.len();
        sections.push(format!("# Clients\r\nconnected_clients:{connected}\r\n"));
    }
    if wants("replication") {
        sections.push(replication(&server.settings));
    }
    Ok(text(&sections.join("\r\n")))
}

fn replication(settings: &Settings) -> String {
    let mut lines = String::from("# Replication\r\n");
    // Writing to a string does not fail.
    let _ = match &settings.role {
        Role::Master { offset, replicas } => {
            let _ = write!(
                lines,
                "role:master\r\nconnected_slaves:{}\r\n",
                replicas.len()
            );
            for (number, replica) in replicas.iter().enumerate() {
                let (host, port, offset) = (&replica.host, replica.port, replica.offset);
                let _ = write!(
                    lines,
                    "slave{number}:ip={host},port={port},state=online,offset={offset},lag=0\r\n"
                );
            }
            write!(
                lines,
                "master_failover_state:no-failover\r\nmaster_repl_offset:{offset}\r\n"
            )
        }
        Role::Replica {
            host,
            port,
            link,
            offset,
        } => {
            let link = if *link == "connected" { "up" } else { "down" };
            write!(
                lines,
                "role:slave\r\nmaster_host:{host}\r\nmaster_port:{port}\r\nmaster_link_status:{link}\r\n\
                slave_repl_offset:{offset}\r\nslave_priority:100\r\nslave_read_only:1\r\nconnected_slaves:0\r\n\
                master_repl_offset:{offset}\r\n"
            )
        }
    };
    lines
}
