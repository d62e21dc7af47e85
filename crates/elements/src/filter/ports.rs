//! The interfaces of a filter as arguments say them, and the filter that knows them.
use super::shared::SharedFilter;
use artery_engine::{ArgError, Args};
use artery_filter::names::{InterfaceAddress, InterfaceRecord, Interfaces};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The number of the first port among the interfaces of a filter: before it is the loopback, which rules may name.
pub(super) const FIRST: u16 = 1;

/// The interfaces of the PORT arguments.
pub(super) fn of_arguments(args: &Args<'_>) -> Result<Vec<InterfaceRecord>, ArgError> {
    args.rest("PORT").iter().map(|text| port(text)).collect()
}

/// `NAME [ADDRESS/LENGTH…]`.
fn port(text: &str) -> Result<InterfaceRecord, ArgError> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or_else(|| ArgError::wrong("PORT wants a name"))?;
    let address = |word: &str| {
        let wrong = || {
            ArgError::wrong_at(
                word,
                format!("PORT {name}: '{word}' is no ADDRESS/LENGTH, such as 192.0.2.1/24"),
            )
        };
        let (ip, length) = word.split_once('/').ok_or_else(wrong)?;
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let length: u8 = length.parse().map_err(|_| wrong())?;
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        if length > longest { Err(wrong()) } else { Ok(own(ip, length)) }
    };
    Ok(record(name, words.map(address).collect::<Result<_, _>>()?))
}

fn own(address: IpAddr, length: u8) -> InterfaceAddress {
    InterfaceAddress { address, length, peer: None }
}

/// An interface that rules can name, in the group of all.
pub(crate) fn record(name: &str, addresses: Vec<InterfaceAddress>) -> InterfaceRecord {
    InterfaceRecord { name: name.into(), groups: vec!["all".into()], addresses, ..InterfaceRecord::default() }
}

/// A filter that knows ports, with the rules of FILE.
pub(super) fn shared(args: &Args<'_>, ports: Vec<InterfaceRecord>) -> Result<SharedFilter, ArgError> {
    with_file(args, ports, args.read("FILE")?, args.read("LOG")?)
}

/// The same with rules of a file, if one is given, and a file for what is logged.
pub(crate) fn with_file(
    args: &Args<'_>,
    ports: Vec<InterfaceRecord>,
    file: Option<String>,
    log: Option<String>,
) -> Result<SharedFilter, ArgError> {
    let filter = SharedFilter::new(args.domain(), with_loopback(ports), args.copy().1);
    if let Some(path) = log {
        filter
            .log_to(&path)
            .map_err(|error| ArgError::wrong_at(&path, format!("can't write {path}: {error}")))?;
    }
    if let Some(path) = file {
        load_file(&filter, &path).map_err(|why| ArgError::wrong_at(&path, why))?;
    }
    Ok(filter)
}

/// Loads the rules of a file.
pub(crate) fn load_file(filter: &SharedFilter, path: &str) -> Result<(), String> {
    let text = std::fs::read(path).map_err(|error| format!("can't read {path}: {error}"))?;
    filter.load("", path, &text, Duration::ZERO)
}

/// Ports behind the loopback of the host, which rules may name.
pub(crate) fn with_loopback(ports: Vec<InterfaceRecord>) -> Interfaces {
    let loopback = vec![own(Ipv4Addr::LOCALHOST.into(), 8), own(Ipv6Addr::LOCALHOST.into(), 128)];
    let mut records = vec![InterfaceRecord { is_loopback: true, ..record("lo0", loopback) }];
    records.extend(ports);
    Interfaces(records)
}
