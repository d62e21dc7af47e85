//! What the files of a folder say together: switches and their ports, a router, and commands of the host.
use super::etc::Kind;
use super::verdict::{Judged, Note, Place, Verdict};
use crate::ipfix::IpfixSettings;
use crate::router::folder::FolderRouter;
use artery_l2::command::Command;
use artery_wire::EtherAddr;
use std::net::IpAddr;

/// The switches and the router to start, and the verdict on each line of their files.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) switches: Vec<Switch>,
    /// The router of the interfaces that have addresses and are no switch's ports, if there are such.
    pub(super) router: Option<FolderRouter>,
    /// Its ports that are interfaces of the machine.
    pub(super) routed: Vec<Port>,
    /// Commands of the host, in the order of the files.
    pub(super) shell: Vec<Shell>,
    pub(super) judged: Vec<Judged>,
    /// How many of these are on lines outside the packet filter's rules; the router itself warns of the
    /// rules. All if None.
    pub(super) lines_of_files: Option<usize>,
    pub(super) notes: Vec<Note>,
    /// The packet filter's rules, if there are any.
    pub(super) pf: Option<RulesFile>,
    /// Where packets that rules log are written.
    pub(super) pflog: Option<String>,
    /// Most bytes of that file, as it was written; empty for the default.
    pub(super) pflog_max: String,
    /// Where states of rules with `pflow` are exported to.
    pub(super) ipfix: Option<IpfixSettings>,
}

impl Plan {
    /// How lines are approximated. The router itself warns of rules when it loads them, so they are left out.
    pub(super) fn approximations(&self) -> Vec<String> {
        let own = self.lines_of_files.unwrap_or(self.judged.len());
        self.judged.iter().take(own).filter_map(Judged::approximation).collect()
    }

    /// All ports: those of switches, and those of the router that are interfaces of the machine.
    pub(super) fn ports(&self) -> impl Iterator<Item = &Port> {
        self.switches.iter().flat_map(|switch| &switch.ports).chain(&self.routed)
    }

    /// Whether an interface is a port of the router.
    pub(super) fn is_routed(&self, name: &str) -> bool {
        self.router.as_ref().is_some_and(|router| router.port(name).is_some())
    }
}

/// The file of the packet filter's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RulesFile {
    pub(super) file: String,
    /// The folder that it means by /etc, if that is another.
    pub(super) etc: Option<String>,
}

/// A switch (veb(4) or bridge(4)), as its file describes it.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) is_up: bool,
    pub(super) description: Option<String>,
    pub(super) ports: Vec<Port>,
    /// Its commands in order, without those that add ports.
    pub(super) commands: Vec<Command>,
}

impl Switch {
    pub(super) fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }
}

/// A port of a switch, or an interface of the machine that is a port of the router.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Port {
    /// As the files call it.
    pub(super) name: String,
    pub(super) kind: PortKind,
    /// Whether its file says `up`.
    pub(super) is_up: bool,
    pub(super) description: Option<String>,
    pub(super) mtu: Option<u32>,
    pub(super) station: Option<EtherAddr>,
    pub(super) addresses: Vec<(IpAddr, u8)>,
    /// Whether frames without a tag are the host's: `untagged IF passthrough`.
    pub(super) is_passed_through: bool,
}

impl Port {
    pub(super) fn new(name: String, kind: PortKind) -> Port {
        Port { name, kind, ..Port::default() }
    }

    /// A port of the router: an address brings an interface up.
    pub(super) fn routed(name: &str) -> Port {
        Port { is_up: true, ..Port::new(name.to_string(), PortKind::Routed) }
    }
}

/// What a port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PortKind {
    /// An interface of the machine.
    #[default]
    Link,
    /// An interface of the machine that gets a copy of everything.
    Span,
    /// An interface that is made for the host.
    HostPort,
    /// A port of a switch that is a port of the router, too.
    OfRouter,
    /// An interface of the machine that is a port of the router and of no switch.
    Routed,
}

/// A command of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shell {
    pub(super) place: Place,
    pub(super) text: String,
}

/// Options for reading a folder.
#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    /// The switches to start; all if none is named.
    pub(super) switches: Vec<String>,
    /// Whether commands of the host are run.
    pub(super) runs_commands: bool,
    /// How many workers there are to be; 0 if that is not known.
    pub(super) workers: u16,
    /// The name of the host's interface to a router, if it was given.
    pub(super) host: Option<String>,
    /// Whether rules that never apply are taken with a warning.
    pub(super) is_lenient: bool,
    /// The file for packets that rules log, if it was given.
    pub(super) pflog: Option<String>,
    /// Most bytes of that file, as it was written; empty for the default.
    pub(super) pflog_max: String,
}

/// A command of the host about an interface, which it calls `$if`.
pub(super) fn shell(place: &Place, text: &str, interface: &str) -> Shell {
    Shell { place: place.clone(), text: text.trim().replace("$if", interface) }
}

/// The verdict on a command that is run, if it is, once a switch or a router is there.
pub(super) fn shell_verdict(is_run: bool, what: &str) -> Verdict {
    match is_run {
        true => Verdict::Honoured,
        false => Verdict::Approximated(format!(
            "not run; with --run-commands the shell runs it once the {what} is there"
        )),
    }
}
