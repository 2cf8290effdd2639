//! Mappers of names and addresses.

use std::collections::HashMap;

use super::section::Section;
use crate::{error::Error, wire::name};

/// The prefix that a mapper adds to names.
pub(super) fn prefix(section: &Section<'_>) -> Result<Option<String>, Error> {
    let Some(class) = section.class("nameMapper")? else {
        return Ok(None);
    };
    if class == "DefaultNameMapper" {
        return Ok(None);
    }
    let mapper = section.section("nameMapper")?;
    let prefix = mapper.as_ref().map(|mapper| mapper.text("prefix"));
    match (prefix.transpose()?.flatten(), mapper) {
        (Some(prefix), Some(mapper)) if mapper.unread().next().is_none() => {
            match name::check(&prefix) {
                Err(reason) if !prefix.is_empty() => {
                    let told = format!("the prefix cannot begin the name of a lock: {reason}");
                    Err(section.error("nameMapper", told))
                }
                _ => Ok(Some(prefix)),
            }
        }
        _ => Err(section.error(
            "nameMapper",
            format!("{class} is not supported: the only supported name mappers are those whose single setting is \
             `prefix`"),
        )),
    }
}

pub(super) type AddressMap = Box<dyn Fn(&str, u16) -> (String, u16) + Send + Sync>;

/// The addresses of a mapper, announced to real, and the setting that has them.
pub(super) fn addresses(
    section: &Section<'_>,
) -> Result<Option<(&'static str, AddressMap)>, Error> {
    if let Some(pairs) = section.section("natMap")? {
        return Ok(Some(("natMap", ports_map(&pairs)?)));
    }
    let Some(class) = section.class("natMapper")? else {
        return Ok(None);
    };
    let (key, map): (_, fn(&Section<'_>) -> _) = match class {
        "DefaultNatMapper" => return Ok(None),
        "HostPortNatMapper" => ("hostsPortMap", ports_map),
        "HostNatMapper" => ("hostsMap", hosts_map),
        _ => {
            let told = format!("{class} is not supported: use `address_map` of the builder");
            return Err(section.error("natMapper", told));
        }
    };
    let mapper = section.section("natMapper")?;
    let pairs = mapper.as_ref().map(|mapper| mapper.section(key));
    let (Some(mapper), Some(pairs)) = (&mapper, pairs.transpose()?.flatten()) else {
        // Redisson itself writes the class without its map.
        return Err(section.error(
            "natMapper",
            format!("the setting {key} of {class} is missing"),
        ));
    };
    if let Some(other) = mapper.unread().next() {
        return Err(Error::config(format!(
            "{other}: unknown setting of {class}"
        )));
    }
    Ok(Some(("natMapper", map(&pairs)?)))
}

fn hosts_map(pairs: &Section<'_>) -> Result<AddressMap, Error> {
    let hosts: HashMap<String, String> = pairs.pairs()?.into_iter().collect();
    Ok(Box::new(move |host, port| {
        (hosts.get(host).map_or(host, |host| host).to_owned(), port)
    }))
}

fn ports_map(pairs: &Section<'_>) -> Result<AddressMap, Error> {
    let mut ports = HashMap::new();
    for (from, to) in pairs.pairs()? {
        let address = to.rsplit_once(':');
        let address = address.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        let address = address.ok_or_else(|| pairs.error(&from, "write host:port"))?;
        ports.insert(from, address);
    }
    Ok(Box::new(move |host, port| {
        let known = ports.get(&format!("{host}:{port}"));
        known.cloned().unwrap_or_else(|| (host.to_owned(), port))
    }))
}
