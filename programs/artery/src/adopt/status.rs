//! What a running `artery adopt` knows of itself, as a document that `artery top` reads.
mod metrics;

use super::Path;
use super::kept::ExcludedPrefixes;
use super::report::{family_name, in_words};
use super::share::Sample;
use artery_adopt::blockers::{Blocker, Direction, Port};
use artery_adopt::fast::{PortCounters, Reason};
use artery_adopt::kernel::{Family, LinkKind};
use artery_adopt::mirror::Vrf;
use artery_adopt::{ConnectionKeeper, ConnectionStatus, Session};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;

/// The whole document. Keys stay as long as `schema_version` does; others may be added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) schema_version: u32,
    pub(crate) version: String,
    /// How long packets have been forwarded.
    pub(crate) seconds: f64,
    /// Interfaces by name, VLANs behind those that carry them.
    pub(crate) ports: Vec<PortStatus>,
    /// Packets that the kernel itself has forwarded in this network namespace since that was made.
    pub(crate) kernel_ipv4: u64,
    pub(crate) kernel_ipv6: u64,
    pub(crate) tables: Tables,
    /// Adopted interfaces that no longer exist.
    #[serde(default)]
    pub(crate) gone: Vec<String>,
    /// Why losses after a redirect by XDP are not counted, if they aren't.
    #[serde(default)]
    pub(crate) uncounted_losses: Option<String>,
    /// What keeps traffic with the kernel.
    pub(crate) guards: Vec<BlockerStatus>,
    /// Routing rules that do, in words.
    pub(crate) rules: Vec<String>,
    /// Connections whose packets are forwarded past rules, all that are known, and how often events of them
    /// were lost; none while there were no rules.
    #[serde(default)]
    pub(crate) connections: Option<Connections>,
    /// How many prefixes stay with the kernel because their routes depend on more than the destination.
    #[serde(default)]
    pub(crate) kept_prefixes: u64,
    /// The first of them in words, and how many more there are.
    #[serde(default)]
    pub(crate) prefixes: Vec<String>,
}

/// An adopted interface, or a VLAN of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PortStatus {
    pub(crate) name: String,
    /// The interface that it is a VLAN on, where its frames to the kernel are counted.
    pub(crate) vlan_on: Option<String>,
    /// The VRF that it belongs to.
    #[serde(default)]
    pub(crate) vrf: Option<VrfStatus>,
    /// `xdp`, `xdp-generic`, `tc` or `graph`.
    pub(crate) path: String,
    /// `fast`, `established`, `fast-in`, `fast-out` or `kernel`.
    pub(crate) ipv4: String,
    pub(crate) ipv6: String,
    /// Whether packets forwarded to it stay with the kernel, because its driver would lose redirected ones.
    pub(crate) is_deaf: bool,
    /// Whether multi-buffer frames forwarded to it stay with the kernel, though its MTU allows them, because
    /// its driver does not transmit redirected ones.
    #[serde(default)]
    pub(crate) keeps_multi_buffer: bool,
    /// Forwarded packets and bytes, past the kernel.
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    /// Of those received, of established connections, forwarded past rules.
    #[serde(default)]
    pub(crate) established: u64,
    /// Of those received, lost before they could be sent.
    pub(crate) lost: u64,
    /// Of those sent, lost because the driver did not take them.
    #[serde(default)]
    pub(crate) dropped: u64,
    /// Frames that went to the kernel, by reason.
    pub(crate) kernel: BTreeMap<String, u64>,
    /// What the kernel's own counters of the interface say, as `ip -s link` shows them; none for one
    /// that is just gone.
    pub(crate) interface_received: Option<u64>,
    pub(crate) interface_sent: Option<u64>,
}

/// Connections of the kernel's connection tracking.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) forwarded: u64,
    pub(crate) known: u64,
    pub(crate) overruns: u64,
    /// How long ends of connections wait until they are read, now and at most, in seconds; whether all
    /// connections stay with the kernel for that.
    #[serde(default)]
    pub(crate) lag: f64,
    #[serde(default)]
    pub(crate) longest_lag: f64,
    #[serde(default)]
    pub(crate) is_late: bool,
    /// Of the known ones, those that began while no process listened, and are compared each second.
    #[serde(default)]
    pub(crate) existing: u64,
    /// Those that stay with the kernel, by what keeps them; each reason is listed also while it is zero.
    /// Those of `unknown` are known to the kernel alone: they began before adopt listened, or are of other
    /// protocols.
    #[serde(default)]
    pub(crate) kept: BTreeMap<String, u64>,
    /// Established, and kept by a rule that may be about them; by windows that the kernel must follow. For
    /// one release beside `kept`.
    #[serde(default)]
    pub(crate) kept_by_rules: u64,
    #[serde(default)]
    pub(crate) kept_by_windows: u64,
}

impl Connections {
    fn of(status: &ConnectionStatus) -> Connections {
        let by = |keeper: &ConnectionKeeper| status.kept[*keeper as usize] as u64;
        let kept = ConnectionKeeper::ALL.iter().map(|keeper| (keeper.name().to_string(), by(keeper)));
        let unknown = status.tracked.map(|tracked| tracked.saturating_sub(status.known) as u64);
        let unknown = unknown.map(|count| (UNKNOWN.to_string(), count));
        Connections {
            forwarded: status.forwarded as u64,
            known: status.known as u64,
            overruns: status.overruns,
            lag: status.lag.now.as_secs_f64(),
            longest_lag: status.lag.longest.as_secs_f64(),
            is_late: status.lag.is_too_long,
            existing: status.existing as u64,
            kept: kept.chain(unknown).collect(),
            kept_by_rules: by(&ConnectionKeeper::Rule),
            kept_by_windows: by(&ConnectionKeeper::Window),
        }
    }

    /// What keeps connections of a name in `kept`, in words.
    pub(crate) fn meaning(name: &str) -> &'static str {
        let found = ConnectionKeeper::ALL.into_iter().find(|keeper| keeper.name() == name);
        match found {
            Some(keeper) => keeper.meaning(),
            None if name == UNKNOWN => "began before anything listened, or of another protocol",
            None => "",
        }
    }
}

/// The name of connections that only the kernel knows.
const UNKNOWN: &str = "unknown";

/// The VRF that an interface belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct VrfStatus {
    pub(crate) name: String,
    /// The number of the routing table that packets which come by its interfaces are looked up in.
    pub(crate) table: u32,
}

/// The kernel's tables, mirrored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tables {
    pub(crate) ipv4_prefixes: u64,
    pub(crate) ipv6_prefixes: u64,
    pub(crate) neighbors: u64,
    /// Distinct results that routes lead to, such as a set of next hops.
    pub(crate) ways: u64,
    /// Changes that the kernel has notified.
    pub(crate) changes: u64,
    /// How often the kernel dropped notifications because the socket's buffer was full.
    pub(crate) overruns: u64,
    /// How often all tables were read again (resync).
    pub(crate) looks: u64,
    /// Turns in which changes were applied, how long they took together and at most, in seconds, and how many
    /// took no longer than each of `Pace::BOUNDS`.
    pub(crate) turns: u64,
    pub(crate) turn_seconds: f64,
    pub(crate) longest_turn: f64,
    pub(crate) turns_within: Vec<u64>,
    /// How late changes are heard, in seconds: how long those that were read last had waited, or those that
    /// wait have at least; the longest since the start; and whether it is more than a second.
    #[serde(default)]
    pub(crate) lag: f64,
    #[serde(default)]
    pub(crate) longest_lag: f64,
    #[serde(default)]
    pub(crate) is_late: bool,
}

/// What keeps packets of a port or a family in the kernel, as a firewall's rules do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BlockerStatus {
    pub(crate) kind: String,
    pub(crate) port: Option<String>,
    pub(crate) family: Option<String>,
    pub(crate) direction: String,
    /// One line, with the command that shows or changes it.
    pub(crate) text: String,
}

impl Status {
    pub(super) fn find(session: &Session, began: Instant) -> anyhow::Result<Status> {
        let kernel = Sample::read()?;
        let kept = ExcludedPrefixes::of(session.driver().mirror());
        let rules = session.driver().mirror().exclusion_reasons().map(|reason| reason.to_string()).collect();
        Ok(Status {
            schema_version: 1,
            version: crate::report::VERSION.to_string(),
            seconds: began.elapsed().as_secs_f64(),
            ports: ports(session, &kernel),
            kernel_ipv4: kernel.of(Family::V4).passed,
            kernel_ipv6: kernel.of(Family::V6).passed,
            tables: Tables::of(session),
            gone: session.gone().map(|port| port.name.clone()).collect(),
            uncounted_losses: session.accelerator().uncounted_losses().map(ToString::to_string),
            guards: session.blockers().iter().map(|guard| BlockerStatus::of(guard, session)).collect(),
            rules,
            connections: session.connections().as_ref().map(Connections::of),
            kept_prefixes: kept.count() as u64,
            prefixes: kept.to_lines(),
        })
    }
}

fn ports(session: &Session, kernel: &Sample) -> Vec<PortStatus> {
    let counters = session.accelerator().counters();
    let links: BTreeMap<u32, _> = session.driver().mirror().links().map(|link| (link.index, link)).collect();
    let mut ports = Vec::new();
    for (index, number) in session.accelerator().ports() {
        let (Some(link), Some(counted)) = (links.get(&index), counters.ports.get(number as usize)) else {
            continue;
        };
        let own = session.ports().iter().find(|port| port.index == index);
        let vlan_on = match link.kind {
            LinkKind::Vlan { parent, .. } if own.is_none() => Some(parent),
            _ => None,
        };
        let port = Port { index, name: link.name.clone(), vlan_on, ..Port::default() };
        let carrier = vlan_on.and_then(|carrier| links.get(&carrier)).map(|carrier| carrier.name.clone());
        ports.push(PortStatus::of(session, &port, carrier, counted, kernel));
    }
    let place = |port: &PortStatus| {
        (port.vlan_on.clone().unwrap_or_else(|| port.name.clone()), port.vlan_on.is_some(), port.name.clone())
    };
    ports.sort_by_cached_key(place);
    ports
}

impl From<Vrf> for VrfStatus {
    fn from(Vrf { name, table }: Vrf) -> VrfStatus {
        VrfStatus { name, table }
    }
}

impl PortStatus {
    fn of(
        session: &Session,
        port: &Port,
        carrier: Option<String>,
        counted: &PortCounters,
        kernel: &Sample,
    ) -> PortStatus {
        let below = port.vlan_on.unwrap_or(port.index);
        let accelerator = session.accelerator();
        let mode = accelerator.mode(below).or_else(|| {
            // A bridge has no program; its members have.
            accelerator.bridge_members(below).find_map(|member| accelerator.mode(member))
        });
        // Nor has a tunnel, whose outer packets leave by the same path as others.
        let of_any = || session.ports().iter().find_map(|port| accelerator.mode(port.index));
        let mode = mode.or_else(|| of_any().filter(|_| accelerator.is_tunnel(below)));
        let path = mode.map_or("", |mode| Path::from(mode).name());
        let reasons = Reason::ALL.iter().zip(counted.kernel);
        let interface = kernel.of_interface(&port.name);
        // Besides blockers there are rules, and requirements on sources.
        let is_deaf = session.without_redirect().any(|port| port.index == below);
        let leads_somewhere = session.without_redirect().count() < session.ports().len();
        let may =
            |family| (leads_somewhere && session.accelerator().is_forwarding(family, port.index), !is_deaf);
        PortStatus {
            name: port.name.clone(),
            vlan_on: carrier,
            vrf: session.driver().mirror().vrf_of(port.index).map(VrfStatus::from),
            path: path.to_string(),
            ipv4: in_words(port, Family::V4, session.blockers(), may(Family::V4)).to_string(),
            ipv6: in_words(port, Family::V6, session.blockers(), may(Family::V6)).to_string(),
            is_deaf,
            keeps_multi_buffer: session.without_multi_buffer().any(|keeps| keeps.index == below),
            received: counted.received,
            received_bytes: counted.received_bytes,
            sent: counted.sent,
            sent_bytes: counted.sent_bytes,
            established: counted.established,
            lost: counted.lost,
            dropped: counted.dropped,
            kernel: reasons.map(|(reason, count)| (reason.name().to_string(), count)).collect(),
            interface_received: interface.map(|packets| packets.received),
            interface_sent: interface.map(|packets| packets.passed),
        }
    }

    /// Of those received, packets forwarded where no rule is.
    pub(crate) fn fast(&self) -> u64 {
        self.received.saturating_sub(self.established)
    }

    /// Frames that went to the kernel, for whatever reason.
    pub(crate) fn to_kernel(&self) -> u64 {
        self.kernel.values().sum()
    }
}

impl Tables {
    fn of(session: &Session) -> Tables {
        let (driver, pace, lag) = (session.driver(), session.pace(), session.lag());
        let mirror = driver.mirror();
        Tables {
            ipv4_prefixes: mirror.prefixes(Family::V4) as u64,
            ipv6_prefixes: mirror.prefixes(Family::V6) as u64,
            neighbors: mirror.neighbors().count() as u64,
            ways: mirror.paths() as u64,
            changes: driver.changes(),
            overruns: driver.overruns(),
            looks: driver.resyncs(),
            turns: pace.turns(),
            turn_seconds: pace.sum().as_secs_f64(),
            longest_turn: pace.longest().as_secs_f64(),
            turns_within: pace.within().to_vec(),
            lag: lag.now.as_secs_f64(),
            longest_lag: lag.longest.as_secs_f64(),
            is_late: lag.is_too_long,
        }
    }
}

impl BlockerStatus {
    fn of(guard: &Blocker, session: &Session) -> BlockerStatus {
        let port = session.driver().mirror().links().find(|link| Some(link.index) == guard.port);
        let direction = match guard.direction {
            Direction::In => "in",
            Direction::Out => "out",
            Direction::Both => "both",
        };
        BlockerStatus {
            kind: hyphenated(&format!("{:?}", guard.kind)),
            port: port.map(|port| port.name.clone()),
            family: guard.family.map(|family| family_name(family).to_string()),
            direction: direction.to_string(),
            text: guard.to_string(),
        }
    }
}

/// Writes `VirtualServers` as `virtual-servers`.
fn hyphenated(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

/// A document for tests: two ports, a VLAN of one, and a blocker.
#[cfg(test)]
pub(crate) fn example() -> Status {
    let port = |name: &str, received: u64, sent: u64| PortStatus {
        name: name.into(),
        path: "tc".into(),
        ipv4: "fast".into(),
        ipv6: "kernel".into(),
        received,
        received_bytes: 100 * received,
        sent,
        sent_bytes: 100 * sent,
        kernel: [("other-protocol".to_string(), 3), ("expired".to_string(), 0)].into(),
        interface_received: Some(received + 3),
        interface_sent: Some(sent),
        ..PortStatus::default()
    };
    Status {
        schema_version: 1,
        version: "0".into(),
        seconds: 10.0,
        gone: Vec::new(),
        uncounted_losses: None,
        ports: vec![
            port("eth0", 1000, 500),
            PortStatus { vlan_on: Some("eth0".into()), ..port("eth0.7", 0, 0) },
            port("eth1", 500, 1000),
        ],
        kernel_ipv4: 40,
        kernel_ipv6: 10,
        tables: Tables {
            ipv4_prefixes: 900_000,
            changes: 7,
            turns: 2,
            turn_seconds: 0.5,
            longest_turn: 0.4,
            turns_within: vec![0, 0, 0, 0, 0, 1, 2, 2],
            lag: 0.002,
            longest_lag: 0.4501,
            ..Tables::default()
        },
        guards: vec![BlockerStatus {
            kind: "nftables".into(),
            family: Some("IPv6".into()),
            direction: "both".into(),
            text: "nftables: table ip6 f: IPv6 stays with the kernel (shown by: nft)".into(),
            port: None,
        }],
        rules: Vec::new(),
        connections: None,
        kept_prefixes: 0,
        prefixes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_survives_its_text_and_may_have_more() {
        let text = serde_json::to_string(&example()).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), example());
        let more = text.replacen('{', "{\"later\": 1,", 1);
        assert!(serde_json::from_str::<Status>(&more).is_ok());
    }

    #[test]
    fn kinds_have_the_names_of_metrics() {
        let found = ["Nftables", "VirtualServers"].map(hyphenated);
        assert_eq!(found, ["nftables".to_string(), "virtual-servers".to_string()]);
    }
}
