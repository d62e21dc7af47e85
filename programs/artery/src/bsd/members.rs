//! hostname.em0, hostname.vport0: what a line makes of an interface, which depends on what the interface
//! is to a switch.
use super::etc::Kind;
use super::hostname::{Line, Setting, settings, words};
use super::plan::{Port, PortKind};
use super::verdict::Verdict;

/// What a line says of an interface, and what becomes of it. `port` is the port that the interface
/// is, with its switch.
pub(super) fn judge(name: &str, line: &Line, port: Option<&(String, Port)>) -> (Vec<Setting>, Verdict) {
    let Some((switch, port)) = port else { return (Vec::new(), of_no_port(name)) };
    match words(&line.text).and_then(|words| settings(&words)) {
        Err(why) => (Vec::new(), Verdict::Refused(why)),
        Ok(settings) => {
            let verdict = settings.iter().fold(Verdict::Honoured, |all, setting| {
                all.and(match port.kind {
                    PortKind::HostPort => host_port_verdict(&port.name, setting),
                    PortKind::Link | PortKind::Span | PortKind::OfRouter | PortKind::Routed => {
                        of_link(port, switch, setting)
                    }
                })
            });
            (settings, verdict)
        }
    }
}

/// Has a port do it.
pub(super) fn apply(port: &mut Port, settings: &[Setting]) {
    for setting in settings {
        match setting {
            Setting::Up => port.is_up = true,
            Setting::Down => port.is_up = false,
            Setting::Description(text) => port.description = Some(text.clone()),
            Setting::Mtu(mtu) => port.mtu = Some(*mtu),
            Setting::Station(station) => port.station = Some(*station),
            Setting::Address(address, len) => port.addresses.push((*address, *len)),
            Setting::Automatic(_) | Setting::Parent(_) | Setting::VlanId(_) => {}
        }
    }
}

/// Why an interface that is no vlan(4) has no number of one.
pub(super) const NO_VLAN: &str =
    "'parent' and 'vnetid' make a vlan(4); write them to a file such as hostname.vlan10";

pub(super) fn of_no_port(name: &str) -> Verdict {
    match Kind::of(name) {
        Kind::HostPort => Verdict::Refused(format!(
            "{name} is not a port of a switch; write 'add {name}' to the file of one, such as hostname.veb0"
        )),
        _ => Verdict::Approximated(format!(
            "{name} is not a port of a switch that starts, and is left to the host as it is"
        )),
    }
}

fn host_port_verdict(name: &str, setting: &Setting) -> Verdict {
    match setting {
        Setting::Down => Verdict::Approximated(format!(
            "{name} is up from the start; 'ip link set {name} down' takes it down"
        )),
        Setting::Automatic(word) => Verdict::Refused(format!(
            "'{word}' asks for an address, which is left to the host's programs: write '!dhclient {name}' \
             and start with --run-commands"
        )),
        Setting::Parent(_) | Setting::VlanId(_) => Verdict::Refused(NO_VLAN.into()),
        _ => Verdict::Honoured,
    }
}

fn of_link(port: &Port, switch: &str, setting: &Setting) -> Verdict {
    let name = &port.name;
    match setting {
        Setting::Address(..) | Setting::Automatic(_) if port.is_passed_through => {
            Verdict::Approximated(format!(
                "left to the host, whose {name} is where it has no tag; 'ip address add ADDRESS/LENGTH dev \
                 {name}' gives it an address"
            ))
        }
        Setting::Up | Setting::Description(_) | Setting::Mtu(_) => Verdict::Honoured,
        Setting::Parent(_) | Setting::VlanId(_) => Verdict::Refused(NO_VLAN.into()),
        Setting::Down => {
            Verdict::Approximated(format!("{name} is left as it is; 'ip link set {name} down' takes it down"))
        }
        Setting::Station(_) => {
            Verdict::Approximated(format!("{name} keeps its address, from which the switch sends nothing"))
        }
        Setting::Address(..) | Setting::Automatic(_) => Verdict::Refused(format!(
            "{name} is a port of {switch}, and a port has no address of the host; write 'add vport0' to \
             hostname.{switch}, and this line to hostname.vport0"
        )),
    }
}
