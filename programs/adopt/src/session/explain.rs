//! What becomes of one packet: by the programs, and by the kernel where they leave it to that.
//!
//! The decision is that of [`decide_frame`](crate::fast::decide_frame), by the tables that programs read.
//! What the kernel does is asked of the kernel where it answers (routes), and evaluated where it does not
//! (rules).
use super::Session;
use super::routes::{RouteAnswer, RouteQuestion};
use super::tunnels::{Blocks, keeps_tunnel};
use crate::blockers::{Blocker, BlockerKind, Port};
use crate::connections::{ConnectionKeeper, ExplainedConnection};
use crate::fast::{ENOUGH, FlowKey, ForwardDecision, Reason};
use crate::kernel::Family;
use crate::policy::{ConnectionView, Interface, Policy, PolicyObstacle};
use artery_wire::{IpProtocol, Ipv4, Ipv6, describe};
use std::io;
use std::net::IpAddr;

/// A step of a packet's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedStep {
    /// What it is about, in a word or two.
    pub stage: &'static str,
    /// Whether the packet goes on behind it.
    pub is_passed: bool,
    /// What is found, in a line.
    pub text: String,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The steps that decide it, in their order.
    pub steps: Vec<ExplainedStep>,
    /// Why it is left to the kernel; otherwise it is forwarded past it.
    pub reason: Option<Reason>,
    /// The outcome in a line.
    pub verdict: String,
}

/// A packet of IP, as far as it is looked at here.
struct Asked {
    family: Family,
    source: IpAddr,
    destination: IpAddr,
    /// Nothing for protocols whose connections are never forwarded.
    key: Option<FlowKey>,
}

/// Where the kernel sends a packet.
struct KernelRoute {
    output: Option<u32>,
    text: String,
    is_forwarded: bool,
}

impl Session {
    /// Explains a frame that would come by an adopted interface. Nothing is sent, counted or changed.
    ///
    /// # Errors
    /// There is no such interface among the adopted ones; the text says which there are.
    pub fn explain(&mut self, port: &str, frame: &[u8]) -> Result<Explanation, String> {
        let Some(port) = self.ports.iter().chain(&self.named_ports).find(|one| one.name == port).cloned()
        else {
            let names: Vec<&str> = self.ports.iter().map(|port| port.name.as_str()).collect();
            return Err(format!("'{port}' is not adopted: packets come by {}", names.join(", ")));
        };
        let mut steps = vec![self.explain_arrival(&port)];
        if let Some(asked) = Asked::parse(frame) {
            let guards = self
                .blockers
                .iter()
                .filter(|guard| self.keeps(guard, &port, asked.family, Blocker::blocks_from));
            steps.extend(guards.map(|guard| step("guard", guard.is_passed, guard.to_string())));
            let input = Interface { index: port.index, name: port.name.clone() };
            self.explain_packet(&asked, &input, &mut steps);
        }
        let decision = self.accelerator.decide_frame(port.index, frame);
        let (reason, verdict) = match decision {
            Some(ForwardDecision::Send { device, frame }) => {
                let name = self.device_name(device);
                (None, format!("past the kernel: leaves by {name} as {}", describe::frame(&frame)))
            }
            Some(ForwardDecision::Kernel(reason)) => (Some(reason), left_to_kernel(reason)),
            None => (Some(Reason::Policy), format!("{} is gone", port.name)),
        };
        steps.push(step("fast path", reason.is_none(), reason.map_or("forwarded", Reason::meaning)));
        Ok(Explanation { steps, reason, verdict })
    }

    /// How packets of a port come to a program.
    fn explain_arrival(&self, port: &Port) -> ExplainedStep {
        let by = match (self.accelerator.mode(port.index), &port.tunnel) {
            (Some(mode), _) if mode.is_tc() => Some("adopted by tc"),
            (Some(_), _) => Some("adopted by XDP"),
            (None, Some(_)) => self
                .accelerator
                .takes_off_header(port.index)
                .then_some("a tunnel, whose header programs take off at the port of its outer packets"),
            (None, None) if self.accelerator.is_bridge(port.index) => {
                Some("a bridge, at a member where their source is known")
            }
            (None, None) => self.accelerator.port(port.index).map(|_| "a VLAN of an adopted port"),
        };
        let vrf = self.driver.mirror().vrf_of(port.index);
        let routed = vrf.map_or_else(String::new, |vrf| format!(", routed by {vrf}"));
        let kept = match port.is_tunnel() {
            true => "a tunnel, whose header the kernel takes off",
            false => "which is gone",
        };
        step("arrival", by.is_some(), format!("by {}, {}{routed}", port.name, by.unwrap_or(kept)))
    }

    /// Whether a blocker is about packets that come by a port, or leave by it, whatever their connection is.
    fn keeps(&self, guard: &Blocker, port: &Port, family: Family, blocks: Blocks) -> bool {
        guard.kind != BlockerKind::ConnectionRule
            && match port.is_tunnel() {
                true => keeps_tunnel(guard, port, &self.named_ports, family, blocks),
                false => blocks(guard, port, family),
            }
    }

    /// Adds what connection tracking, routes and rules have to say of a packet.
    fn explain_packet(&self, asked: &Asked, input: &Interface, steps: &mut Vec<ExplainedStep>) {
        let at = usize::from(asked.family == Family::V6);
        let consent = self.tracker.as_ref().map(|tracker| tracker.consent()[at]);
        let known = self.tracker.as_ref().zip(asked.key).and_then(|(tracker, key)| tracker.explain(&key));
        if consent.is_some_and(|consent| consent.is_given) {
            steps.push(explain_connection(known.as_ref()));
        }
        let destination = known.as_ref().map_or(asked.destination, |known| {
            // Destinations are translated before routing, sources behind it.
            known.leaves[known.direction].destination
        });
        let route = find_kernel_route(asked.source, destination, input.index)
            .map(|route| self.name_output(route))
            .unwrap_or_else(|error| KernelRoute {
                output: None,
                text: format!("the kernel has none for it: {error}"),
                is_forwarded: false,
            });
        steps.push(step("route", route.is_forwarded, route.text.clone()));
        let output = route.output.and_then(|index| self.interface(index));
        if let Some(port) = self.named_ports.iter().find(|port| Some(port.index) == route.output) {
            let is_about = |guard: &&Blocker| self.keeps(guard, port, asked.family, Blocker::blocks_to);
            let guards = self.blockers.iter().filter(is_about).filter(|guard| guard.port.is_some());
            steps.extend(guards.map(|guard| step("guard", guard.is_passed, guard.to_string())));
        }
        let Some(key) = asked.key else { return };
        match Policy::read() {
            Ok(policy) => {
                let translates = consent.is_some_and(|consent| consent.translates);
                let by = self.accelerator.egress(asked.source).flatten();
                let returns = by.is_some() && by == self.accelerator.port(input.index);
                let output = output.as_ref();
                let found = RulesAsked { policy: &policy, input, output, returns, translates };
                steps.extend(found.explain(&key, known.as_ref()));
            }
            Err(error) => steps.push(step("rules", false, format!("they can't be read: {error}"))),
        }
    }

    fn interface(&self, index: u32) -> Option<Interface> {
        let link = self.driver.mirror().links().find(|link| link.index == index)?;
        Some(Interface { index, name: link.name.clone() })
    }

    /// The name of an interface by its number in the map of devices.
    fn device_name(&self, device: u32) -> String {
        let index = self.accelerator.ports().find(|(_, number)| *number == device).map(|(index, _)| index);
        index.and_then(|index| self.interface(index)).map_or_else(|| "?".to_owned(), |port| port.name)
    }

    fn name_output(&self, route: KernelRoute) -> KernelRoute {
        let name = route.output.and_then(|index| self.interface(index)).map(|port| port.name);
        let text = name.map_or(route.text.clone(), |name| format!("{} by {name}", route.text));
        KernelRoute { text, ..route }
    }
}

fn step(stage: &'static str, is_passed: bool, text: impl Into<String>) -> ExplainedStep {
    ExplainedStep { stage, is_passed, text: text.into() }
}

fn left_to_kernel(reason: Reason) -> String {
    format!("left to the kernel ({}): {}", reason.name(), reason.meaning())
}

fn explain_connection(known: Option<&ExplainedConnection>) -> ExplainedStep {
    let Some(known) = known else {
        let text = format!(
            "none is known: fewer than {ENOUGH} packets of it came, it began before, or there is none"
        );
        return step("connection", false, text);
    };
    let (arrives, leaves) = (known.tuples[known.direction], known.leaves[known.direction]);
    let of = if known.direction == 0 { "its original direction" } else { "its answers" };
    let new = if arrives == leaves { String::new() } else { format!(", leaves as {}", tuple_text(&leaves)) };
    let why = known.kept_by.map_or("forwarded past rules", ConnectionKeeper::meaning);
    step("connection", known.kept_by.is_none(), format!("{}{new}: {of}: {why}", tuple_text(&arrives)))
}

/// `10.0.1.2:1000 > 10.0.2.2:80`.
fn tuple_text(key: &FlowKey) -> String {
    let [a, b, c, d] = key.ports;
    let has_ports = [6, 17].contains(&key.protocol);
    let end = |address: IpAddr, port: [u8; 2]| match has_ports {
        true => std::net::SocketAddr::new(address, u16::from_be_bytes(port)).to_string(),
        false => address.to_string(),
    };
    format!("{} > {}", end(key.source, [a, b]), end(key.destination, [c, d]))
}

/// What answers arrive with, where nothing is translated.
fn answer_to(key: &FlowKey) -> FlowKey {
    let [a, b, c, d] = key.ports;
    let ports = if [6, 17].contains(&key.protocol) { [c, d, a, b] } else { key.ports };
    FlowKey { source: key.destination, destination: key.source, ports, ..*key }
}

/// What rules are asked with.
struct RulesAsked<'a> {
    policy: &'a Policy,
    input: &'a Interface,
    output: Option<&'a Interface>,
    /// Whether the source is routed by the input.
    returns: bool,
    translates: bool,
}

impl RulesAsked<'_> {
    /// A step for each thing in the way, or one that says that there is none.
    fn explain(&self, key: &FlowKey, known: Option<&ExplainedConnection>) -> Vec<ExplainedStep> {
        let (mut found, of) = match known {
            Some(known) => (self.obstacles_to_known(known), "packets of the connection"),
            None => {
                let view = self.view(*key, *key, [*key, answer_to(key)], 0, 0);
                (self.policy.obstacles_to_first(&view, self.translates), "the first packet of a connection")
            }
        };
        found.sort();
        found.dedup();
        if found.is_empty() {
            return vec![step("rules", true, format!("nothing stands in the way of {of}"))];
        }
        if known.is_some_and(|known| known.is_offloaded && known.kept_by.is_none()) {
            let text = "the kernel had the connection in a flow table, by which it forwards past rules, too";
            return vec![step("rules", true, text)];
        }
        let rule = |one: &PolicyObstacle| {
            let may = if one.is_sure { "" } else { ", if it matches" };
            step("rule", !one.is_sure, format!("{}{may} ({})", one.what, one.remedy))
        };
        found.iter().map(rule).collect()
    }

    fn obstacles_to_known(&self, known: &ExplainedConnection) -> Vec<PolicyObstacle> {
        let view = |at: usize| {
            let direction = at as u8;
            let view = self.view(known.tuples[at], known.leaves[at], known.tuples, direction, known.status);
            match at == known.direction {
                true => view,
                // Answers come from where the packet goes.
                false => ConnectionView { input: self.output, output: Some(self.input), ..view },
            }
        };
        let this = view(known.direction);
        let mut found = self.policy.obstacles(&this);
        found.extend(self.policy.obstacles(&view(1 - known.direction)));
        if known.kept_by == Some(ConnectionKeeper::Window) {
            found.extend(self.policy.obstacle_to_invalid(&this));
        }
        found
    }

    fn view(
        &self,
        arrives: FlowKey,
        leaves: FlowKey,
        tuples: [FlowKey; 2],
        direction: u8,
        status: u32,
    ) -> ConnectionView<'_> {
        let (input, output) = (Some(self.input), self.output);
        let is_routed = self.returns;
        ConnectionView { arrives, leaves, tuples, direction, status, input, output, is_routed }
    }
}

impl Asked {
    /// Reads a frame of IP, with a tag or without.
    fn parse(frame: &[u8]) -> Option<Asked> {
        let network = if frame.get(12..14)? == [0x81, 0] { 18 } else { 14 };
        let packet = frame.get(network..)?;
        if let Ok(header) = Ipv4::new(packet) {
            // What follows the header of a fragment is no header of its own, or not for sure.
            let transport = if header.is_fragment() { &[] } else { header.payload() };
            let ends = (header.src().into(), header.dst().into());
            return Some(Asked::new(Family::V4, ends, header.protocol(), transport));
        }
        let header = Ipv6::new(packet).ok()?;
        let ends = (header.src().into(), header.dst().into());
        Some(Asked::new(Family::V6, ends, header.next_header(), header.payload()))
    }

    fn new(
        family: Family,
        (source, destination): (IpAddr, IpAddr),
        protocol: IpProtocol,
        transport: &[u8],
    ) -> Asked {
        let ports = transport.first_chunk::<8>().and_then(|head| match (protocol.0, head[0]) {
            (6 | 17, _) => Some([head[0], head[1], head[2], head[3]]),
            (1, 0 | 8) | (58, 128 | 129) => Some([head[4], head[5], head[0], head[1]]),
            _ => None,
        });
        let key = ports.map(|ports| FlowKey { source, destination, ports, protocol: protocol.0 });
        Asked { family, source, destination, key }
    }
}

/// Asks the kernel where it sends a packet that comes by an interface.
fn find_kernel_route(source: IpAddr, destination: IpAddr, input: u32) -> io::Result<KernelRoute> {
    let question =
        RouteQuestion { source: Some(source), input: Some(input), ..RouteQuestion::to(destination) };
    let RouteAnswer { kind, output, gateway, .. } = question.ask_kernel()?;
    let is_forwarded = kind == RouteAnswer::UNICAST;
    let to =
        gateway.map_or_else(|| destination.to_string(), |gateway| format!("{destination} via {gateway}"));
    let text = match kind {
        RouteAnswer::UNICAST => format!("to {to}"),
        RouteAnswer::LOCAL => format!("{destination} is this machine"),
        3 | 5 => format!("{destination} is a broadcast or multicast address"),
        _ => format!("to {destination} is rejected"),
    };
    Ok(KernelRoute { output: output.filter(|_| is_forwarded), text, is_forwarded })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_any_length_is_read_or_not() {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 53]);
        frame.extend([0, 8, 0, 0]);
        let asked = Asked::parse(&frame).unwrap();
        assert_eq!(tuple_text(&asked.key.unwrap()), "10.0.0.1:9 > 10.0.0.2:53");
        for length in 0..frame.len() {
            assert!(Asked::parse(&frame[..length]).is_none_or(|asked| asked.key.is_none()));
        }
        // More fragments follow.
        frame[20] = 0x20;
        assert!(Asked::parse(&frame).unwrap().key.is_none());
    }
}
