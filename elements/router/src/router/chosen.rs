//! The neighbor that packets to an address are sent to, and its state.
use super::json::port_name;
use super::verdict::{TablesView, is_forwardable};
use artery_forward::flow::FlowHasher;
use artery_forward::shared::SharedRouter;
use artery_l3::neighbor::NeighborView;
use artery_l3::path::{Explained, Method, Outcome};
use artery_l3::router::{PortView, Tables};
use artery_rcu::Turn;
use artery_wire::EtherAddr;
use artery_wire::build::{ether, ip4, ip6};
use serde::Serialize;
use std::net::IpAddr;
use std::time::Duration;

/// A placeholder for MAC addresses that don't affect the result.
const NOBODY: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xfe]);

/// The neighbor that packets go to.
#[derive(Clone, Serialize)]
pub(super) struct ChosenJson {
    pub(super) next_hop: IpAddr,
    pub(super) port: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lladdr: Option<String>,
    /// The state as in `ip neighbor`; NONE for an unknown neighbor.
    pub(super) state: String,
    pub(super) mtu: u16,
}

/// The neighbor that a decision sends packets to.
pub(super) fn describe_next_hop(
    tables: &Tables,
    ports: &[PortView],
    found: &Explained,
    next_hop: IpAddr,
    now: Duration,
) -> ChosenJson {
    let port = found.decision.port;
    let (state, lladdr) = match next_hop {
        IpAddr::V4(to) => neighbor_state(tables.neighbor(port, to.to_bits(), now)),
        IpAddr::V6(to) => neighbor_state(tables.neighbor(port, to.to_bits(), now)),
    };
    ChosenJson { next_hop, port: port_name(ports, port), lladdr, state, mtu: found.decision.mtu }
}

/// State and link address of a neighbor.
fn neighbor_state<A>(view: Option<NeighborView<A>>) -> (String, Option<String>) {
    match view {
        Some(view) => (view.state.to_string(), view.link.map(|link| link.to_string())),
        None => ("NONE".to_string(), None),
    }
}

/// The outcome for packets to an address, and the neighbor that an echo request of the router
/// would be sent to.
pub(super) fn chosen_for(
    router: &SharedRouter,
    tables: &Tables,
    to: IpAddr,
    turn: &Turn<'_>,
    now: Duration,
) -> (Outcome, Option<ChosenJson>) {
    let readers = router.readers();
    let view = TablesView { ports: readers.ports.read(turn), v4: &readers.v4, v6: &readers.v6, turn };
    let frame = echo_request(view.ports, to);
    let number = |method| flow_number(&frame, method);
    let found = match to {
        IpAddr::V4(to) => view.v4.explain_path(turn, to.to_bits(), number),
        IpAddr::V6(to) => view.v6.explain_path(turn, to.to_bits(), number),
    };
    let outcome = found.decision.outcome;
    let chosen = || describe_next_hop(tables, view.ports, &found, view.next_hop(&found, to), now);
    (outcome, is_forwardable(outcome).then(chosen))
}

/// The frame of an echo request from the router.
fn echo_request(ports: &[PortView], to: IpAddr) -> Vec<u8> {
    let link = ether(NOBODY, NOBODY);
    match to {
        IpAddr::V4(to) => {
            let from = ports.iter().find_map(|port| port.v4.first()).map_or(0, |(own, _)| *own);
            link.ip4(ip4().src(from.to_be_bytes()).dst(to).icmp_echo(1, 1)).bytes()
        }
        IpAddr::V6(to) => {
            let from = ports.iter().find_map(|port| port.v6.first()).map_or(0, |(own, _)| *own);
            link.ip6(ip6().src(from.to_be_bytes()).dst(to).icmp_echo(1, 1)).bytes()
        }
    }
}

/// The number of a frame's flow. For methods that go by packets it is that of no packet in particular.
pub(super) fn flow_number(frame: &[u8], method: Method) -> u32 {
    if method == Method::PerPacket { 0 } else { FlowHasher::default().flow_number(frame, method) }
}
