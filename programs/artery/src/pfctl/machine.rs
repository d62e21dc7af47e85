//! What rule files can refer to on this machine, or on the one that tests assume.
use artery_device::{Interface, default_route_interfaces, files, host_addresses};
use artery_filter::names::{InterfaceAddress, InterfaceRecord, Interfaces};
use artery_filter::syntax::{Environment, NumberedNames, file_in};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

/// The variable that makes rule files be read as on the machine that tests assume.
const FIXTURE: &str = "ARTERY_PF_FIXTURE";

/// The machine of tests if its variable is set, otherwise this one, with the interfaces `known` to filters if
/// these are given; host names are resolved unless `is_numeric`. Rules mean `etc` by /etc if it is given.
pub(super) fn environment(
    is_numeric: bool,
    etc: Option<PathBuf>,
    known: Option<Interfaces>,
) -> Environment<'static> {
    let read_file = Box::new(move |name: &str| read_file(name, etc.as_deref()));
    if std::env::var_os(FIXTURE).is_some_and(|value| !value.is_empty()) {
        return Environment { read_file, ..Environment::fixture() };
    }
    Environment {
        interfaces: known.unwrap_or_else(interfaces),
        names: NumberedNames::of_machine(),
        read_file,
        find_host: Box::new(move |name| if is_numeric { Vec::new() } else { find_host(name) }),
    }
}

fn read_file(name: &str, etc: Option<&Path>) -> Result<Vec<u8>, String> {
    // A name without a folder is looked up in the working directory.
    let etc = etc.filter(|_| name.starts_with('/'));
    let file = etc.map_or_else(|| name.into(), |etc| file_in(etc, name));
    files::read(file).map_err(|error| artery_device::system_message(&error))
}

fn find_host(name: &str) -> Vec<IpAddr> {
    (name, 0).to_socket_addrs().map(|found| found.map(|one| one.ip()).collect()).unwrap_or_default()
}

fn interfaces() -> Interfaces {
    let addresses = host_addresses().unwrap_or_default();
    let outward = default_route_interfaces();
    let found = Interface::list().into_iter().filter_map(|name| Interface::find(&name).ok());
    let record = |interface: Interface| {
        let own = addresses.iter().filter(|one| one.index == interface.index).map(|one| InterfaceAddress {
            address: one.address,
            length: one.length,
            peer: one.peer,
        });
        let kind = interface.name.trim_end_matches(|c: char| c.is_ascii_digit());
        let mut groups = vec!["all".to_string()];
        groups.extend((kind != interface.name).then(|| kind.to_string()));
        groups.extend(outward.contains(&interface.name).then(|| "egress".to_string()));
        let is_loopback = own.clone().any(|one| one.address.is_loopback()) || interface.name == "lo";
        let addresses = own.collect();
        let mut record = InterfaceRecord { is_loopback, groups, addresses, domain: 0, name: interface.name };
        record.leave_out_automatic_addresses();
        record
    };
    Interfaces(found.map(record).collect())
}
