//! Why a packet goes where it goes: the router's own judgement of it, spelt out step by step.
//!
//! What becomes of the packet is said by the very functions that say it of packets on their way; the steps before are
//! told from the same tables. Nothing is sent, counted or changed, and no neighbor is asked.
use super::explanation::{ChosenJson, Explanation, Facts, Stage, VerdictJson};
use super::flow::Flows;
use super::flow_text::{Described, described};
use super::handlers;
use super::icmp::{self, Silence, Speaker};
use super::ip_router::IpRouter;
use super::route_text::port_names;
use super::shared::SharedRouter;
use super::show_ports::reverse_path;
use super::show_routes::{json, name};
use super::slow::{LINK, judge, unless_unclaimed};
use super::verdict::{Came, Leave, Message, Origin, Station, Told, Verdict, View};
use artery_engine::{Context, DropReason};
use artery_rcu::Turn;
use artery_table::PortId;
use artery_table::neighbor::NeighborView;
use artery_table::next_hop::Hop;
use artery_table::path::{Explained, Method, Outcome, PathReader};
use artery_table::router::{GroupView, Ip, Tables};
use artery_wire::build::{ether, ip4, ip6};
use artery_wire::{EtherAddr, EtherType, Ethernet, IcmpError, Ipv4, Ipv6, describe, nd};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// The station that frames come from in explanations: whoever it is makes no difference.
const SENDER: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xfe]);

/// The handler `explain_json`: `PORT|host FLOW`.
pub(super) fn handler(r: &mut IpRouter, text: &str, cx: &mut Context<'_>) -> Result<String, String> {
    let now = handlers::now(cx);
    let tables = r.router.tables();
    let text = text.trim();
    let (came_by, flow) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let from = match (came_by, tables.port(came_by)) {
        (_, Some(port)) => Origin::Port(port),
        ("host", None) => Origin::Host,
        ("", None) => return Err("by which port? write 'PORT FLOW', or 'host FLOW'".into()),
        _ => {
            let names = port_names(&tables);
            return Err(format!("no port is called '{came_by}': packets come by {names}, or from 'host'"));
        }
    };
    let readers = r.router.readers();
    let turn = cx.turn();
    let ports = readers.ports.read(turn);
    let view = View { ports, v4: &readers.v4, v6: &readers.v6, turn };
    let station = from.port().and_then(|port| view.port(port)).map_or(SENDER, |port| port.address);
    let frame = match described(flow)? {
        Described::Flow(flow) => flow.frame(station, SENDER)?,
        Described::Frame(bytes) => bytes,
    };
    let is_usable = |port, address| r.slow.is_usable(port, address);
    let steps = Steps {
        frame: &frame,
        from,
        tables: &tables,
        view,
        is_usable: &is_usable,
        now,
        stages: Vec::new(),
        ends_at: None,
    };
    Ok(json(&steps.explain()))
}

/// An explanation in the making.
struct Steps<'a> {
    frame: &'a [u8],
    from: Origin,
    tables: &'a Tables,
    view: View<'a>,
    /// Whether the router may speak from an address of its own.
    is_usable: &'a dyn Fn(PortId, IpAddr) -> bool,
    now: Duration,
    stages: Vec<Stage>,
    /// The stage that ends the packet, and why.
    ends_at: Option<(&'static str, DropReason)>,
}

/// What is in either family's header.
struct Head<A> {
    version: u8,
    source: A,
    destination: A,
    hops: u8,
    len: usize,
    /// Whether it is as long as it says.
    is_sound: bool,
}

impl Steps<'_> {
    fn explain(mut self) -> Explanation {
        let verdict = self.judge();
        Explanation {
            schema_version: 1,
            packet: describe::frame(self.frame).to_string(),
            came_by: self.from.port().map_or("host".to_string(), |port| name(self.view.ports, port)),
            verdict: self.said(&verdict),
            stages: self.stages,
        }
    }

    fn judge(&mut self) -> Verdict {
        let Ok(ethernet) = Ethernet::new(self.frame) else {
            let text = format!("{} bytes are no frame", self.frame.len());
            return self.end_on_arrival(text, DropReason::TooShort);
        };
        let to = match self.from.port().map(|port| self.view.port(port)) {
            Some(Some(port)) => Station::of(ethernet.dst(), port.address),
            Some(None) => return self.end_on_arrival("by a port that is gone".into(), DropReason::PortDown),
            None => Station::Ours,
        };
        let (came, view, frame) = (Came { from: self.from, to }, self.view, self.frame);
        let verdict = judge(frame, came, &view, &mut |method| number(frame, method));
        let verdict = unless_unclaimed(verdict, frame, view.ports, self.is_usable);
        let packet = frame.get(LINK..).unwrap_or_default();
        match ethernet.ether_type() {
            EtherType::IPV4 => self.walk(&verdict, came, head4(packet), view.v4),
            EtherType::IPV6 => self.walk(&verdict, came, head6(packet), view.v6),
            _ => {
                self.ends_at = verdict.reason().map(|reason| ("arrival", reason));
                self.stage("arrival", format!("{}, {}", self.arrived(to), describe::frame(frame)));
            }
        }
        verdict
    }

    fn end_on_arrival(&mut self, text: String, reason: DropReason) -> Verdict {
        self.ends_at = Some(("arrival", reason));
        self.stage("arrival", text);
        Verdict::Discard(reason)
    }

    /// Tells of the steps of an IP packet as far as it comes.
    fn walk<A: Ip>(&mut self, verdict: &Verdict, came: Came, head: Option<Head<A>>, path: &PathReader<A>) {
        self.ends_at = verdict
            .reason()
            .map(|reason| (stage_of(reason, head.as_ref().is_some_and(|head| head.is_sound)), reason));
        if !self.stage("arrival", self.arrived(came.to)) {
            return;
        }
        let Some(head) = head else {
            self.ends_at = self.ends_at.map(|(_, reason)| ("header", reason));
            self.stage("header", "its IP header is not whole".to_string());
            return;
        };
        let text = format!("IPv{}, {} bytes, for {} hops", head.version, head.len, head.hops);
        if !self.stage("header", text) || !self.stage("source", self.source(head.source.to_ip())) {
            return;
        }
        let frame = self.frame;
        let found = path.explain(self.view.turn, head.destination, |method| number(frame, method));
        if !self.route(head.destination) || !self.next_hop(&found) {
            return;
        }
        match found.decision.outcome {
            Outcome::Forward | Outcome::Unresolved | Outcome::Failed => {
                self.leave(verdict, came, &head, &found)
            }
            _ => self.arrive(verdict),
        }
    }

    fn source(&self, source: IpAddr) -> String {
        let port = self.from.port().and_then(|port| self.view.port(port));
        let check = port.map_or("off", |port| reverse_path(port.settings.rpf));
        format!("{source}; the check of the way back is {check}")
    }

    fn route<A: Ip>(&mut self, destination: A) -> bool {
        let to = destination.to_ip();
        let Some(route) = self.tables.lookup(to) else {
            return self.stage("route", format!("no route matches {to}"));
        };
        let (prefix, source) = (route.prefix.to_string(), route.source.name());
        let text = format!("{prefix} matches {to}, {source}");
        let facts = Facts {
            prefix: Some(prefix),
            source: Some(source),
            group: Some(route.group),
            ..Facts::default()
        };
        self.stage_with("route", text, facts)
    }

    /// Which of the route's next hops it takes.
    fn next_hop(&mut self, found: &Explained) -> bool {
        let Some(group) = self.tables.group(found.group) else { return true };
        let slot = found.member.unwrap_or(0);
        let hop = self.tables.member(found.group, slot);
        let at = hop.and_then(|hop| group.members.iter().position(|member| member.hop == hop));
        let Some((hop, at)) = hop.zip(at) else { return true };
        let mut facts = Facts { group: Some(found.group), ..Facts::default() };
        let mut text = self.hop(hop);
        if group.members.len() > 1 {
            let method = group.selection.method();
            (facts.member, facts.members) = (Some(at), Some(group.members.len()));
            facts.method = Some(group.selection.name());
            facts.flow = Some(number(self.frame, method)).filter(|_| method != Method::PerPacket);
            text = format!("{text}, {}", several(&group, at, facts.flow));
        }
        self.stage_with("next-hop", text, facts)
    }

    fn hop(&self, hop: Hop) -> String {
        let port = hop.port().map(|port| name(self.view.ports, port)).unwrap_or_default();
        match hop {
            Hop::Gateway { address, .. } => format!("via {address} on {port}"),
            Hop::OnLink { .. } => format!("on the link of {port}"),
            Hop::End { outcome, port: Some(_) } => format!("{outcome}, of {port}"),
            Hop::End { outcome, port: None } => outcome.to_string(),
        }
    }

    /// On its way out of the router.
    fn leave<A: Ip>(&mut self, verdict: &Verdict, came: Came, head: &Head<A>, found: &Explained) {
        if !self.stage("options", "none that keeps it from going on".to_string()) {
            return;
        }
        let hops = match came.from.port() {
            Some(_) => format!("{} hops left, {} when it leaves", head.hops, head.hops.saturating_sub(1)),
            None => format!("{} hops left, as the host sends it", head.hops),
        };
        if !self.stage("ttl", hops) {
            return;
        }
        let mtu = found.decision.mtu;
        let is_cut = matches!(verdict, Verdict::Forward(leave) | Verdict::Hold(leave) if leave.is_cut);
        let cut = if is_cut { ": cut into fragments" } else { "" };
        if !self.stage("mtu", format!("{} bytes, where {mtu} fit{cut}", head.len)) {
            return;
        }
        let next_hop = match found.neighbor {
            Some(neighbor) if !found.on_link => self.view.v4.address_of(neighbor),
            _ => head.destination.to_ip(),
        };
        let chosen = self.chosen(found, next_hop);
        let at = chosen.lladdr.as_ref().map_or(String::new(), |lladdr| format!(", at {lladdr}"));
        let text = format!("{next_hop} on {}: {}{at}", chosen.port, chosen.state);
        let facts = Facts { chosen: Some(chosen), ..Facts::default() };
        if !self.stage_with("neighbor", text, facts) {
            return;
        }
        if let Verdict::Forward(leave) = verdict {
            self.output(leave);
        }
    }

    fn output(&mut self, leave: &Leave) {
        let port = name(self.view.ports, leave.decision.port);
        let from =
            self.view.port(leave.decision.port).map(|port| port.address.to_string()).unwrap_or_default();
        let to = leave.decision.link.address().map(|link| link.to_string()).unwrap_or_default();
        self.stage("output", format!("by {port}, from {from} to {to}"));
        if let Some(better) = self.redirect(leave) {
            self.stage("redirect", format!("its sender is told that {better} is a better first hop"));
        }
    }

    /// To the router itself, or to all or a group on a link.
    fn arrive(&mut self, verdict: &Verdict) {
        if self.stage("options", "none that is refused".to_string()) {
            self.stage("local", local(verdict).to_string());
        }
    }

    /// The neighbor that a decision leads to.
    fn chosen(&self, found: &Explained, next_hop: IpAddr) -> ChosenJson {
        let Steps { tables, now, .. } = self;
        let port = found.decision.port;
        let (state, lladdr) = match next_hop {
            IpAddr::V4(to) => known(tables.neighbor(port, to.to_bits(), *now)),
            IpAddr::V6(to) => known(tables.neighbor(port, to.to_bits(), *now)),
        };
        ChosenJson { next_hop, port: name(self.view.ports, port), lladdr, state, mtu: found.decision.mtu }
    }

    /// Says a step, and whether the packet goes on.
    fn stage(&mut self, stage: &'static str, text: String) -> bool {
        self.stage_with(stage, text, Facts::default())
    }

    fn stage_with(&mut self, stage: &'static str, text: String, facts: Facts) -> bool {
        let end = self.ends_at.filter(|(at, _)| *at == stage).map(|(_, reason)| reason);
        let text = end.map_or(text.clone(), |reason| {
            format!("{text}: {}. {}", reason.name(), reason.sentence().trim())
        });
        self.stages.push(Stage { stage, ok: end.is_none(), text, facts });
        end.is_none()
    }

    fn arrived(&self, to: Station) -> String {
        let Some(port) = self.from.port() else { return "from the host".to_string() };
        let station = match to {
            Station::Ours => "the port's own station",
            Station::All => "all stations",
            Station::Group => "a group",
            Station::Other => "another station",
        };
        format!("by {}, in a frame to {station}", name(self.view.ports, port))
    }
}

/// The number of a frame's flow. For methods that go by packets it is that of no packet in particular.
fn number(frame: &[u8], method: Method) -> u32 {
    if method == Method::PerPacket { 0 } else { Flows::default().number(frame, method) }
}

fn head4(packet: &[u8]) -> Option<Head<u32>> {
    let ip = Ipv4::new(packet).ok()?;
    let (source, destination) = (ip.src().to_bits(), ip.dst().to_bits());
    let is_sound = ip.check_total_length().is_ok();
    Some(Head { version: 4, source, destination, hops: ip.ttl(), len: ip.total_length().into(), is_sound })
}

fn head6(packet: &[u8]) -> Option<Head<u128>> {
    let ip = Ipv6::new(packet).ok()?;
    let (source, destination) = (ip.src().to_bits(), ip.dst().to_bits());
    let len = Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length());
    let is_sound = ip.check_payload_length().is_ok();
    Some(Head { version: 6, source, destination, hops: ip.hop_limit(), len, is_sound })
}

/// Of several next hops: how this one was chosen.
fn several(group: &GroupView, at: usize, flow: Option<u32>) -> String {
    let (method, count) = (group.selection.name(), group.members.len());
    let alive = group.members.iter().filter(|member| member.is_alive).count();
    let of = if alive == count { format!("of {count}") } else { format!("of {count}, {alive} of them up") };
    match flow {
        Some(flow) => format!("number {} {of}, by {method} of flow {flow:#010x}", at + 1),
        None => format!("one {of}; each packet takes another ({method})"),
    }
}

/// State and link address of a neighbor.
fn known<A>(view: Option<NeighborView<A>>) -> (String, Option<String>) {
    match view {
        Some(view) => (view.state.to_string(), view.link.map(|link| link.to_string())),
        None => ("NONE".to_string(), None),
    }
}

/// Where a packet for the router itself goes.
fn local(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Answer => "the router answers the echo request",
        Verdict::Reassemble => "a fragment: the router waits for the others",
        Verdict::Host => "the host gets it",
        Verdict::Neighbor(Message::Arp) => "a message of ARP: the router looks at it",
        Verdict::Neighbor(Message::Nd) => "a message of Neighbor Discovery: the router looks at it",
        _ => "it goes no further",
    }
}

/// The step at which packets end for a reason.
fn stage_of(reason: DropReason, is_sound: bool) -> &'static str {
    use DropReason as R;
    match reason {
        R::OtherStation => "arrival",
        R::TooShort | R::BadChecksum => "header",
        // A whole header that contradicts itself, or extension headers that do.
        R::Malformed if is_sound => "options",
        R::Malformed => "header",
        R::BadSource | R::OwnSource | R::ReversePath => "source",
        R::BadOption | R::SourceRoute => "options",
        R::TtlExpired => "ttl",
        R::TooBig => "mtu",
        R::NeighborFailed => "neighbor",
        _ => "route",
    }
}

impl Steps<'_> {
    /// The verdict, for programs and in a sentence.
    fn said(&self, verdict: &Verdict) -> VerdictJson {
        let reason = verdict.reason();
        let base = VerdictJson {
            kind: verdict.kind(),
            text: self.sentence(verdict),
            reason: reason.map(DropReason::name),
            sentence: reason.map(|reason| reason.sentence().trim()),
            ..VerdictJson::default()
        };
        match verdict {
            Verdict::Forward(leave) | Verdict::Hold(leave) => VerdictJson {
                port: Some(name(self.view.ports, leave.decision.port)),
                next_hop: Some(leave.next_hop),
                lladdr: leave.decision.link.address().map(|link| link.to_string()),
                fragmented: Some(leave.is_cut),
                redirect: self.redirect(leave),
                ..base
            },
            Verdict::Error(told, _) if self.silence(*told).is_none() => {
                let (icmp_type, icmp_code) = message(*told);
                VerdictJson { icmp_type: Some(icmp_type), icmp_code: Some(icmp_code), ..base }
            }
            _ => base,
        }
    }

    fn sentence(&self, verdict: &Verdict) -> String {
        match verdict {
            Verdict::Forward(leave) => format!("leaves by {}", name(self.view.ports, leave.decision.port)),
            Verdict::Hold(leave) => format!("waits until the link address of {} is known", leave.next_hop),
            Verdict::Error(told, reason) => match self.silence(*told) {
                None => {
                    let (kind, code) = message(*told);
                    let sentence = reason.sentence().trim();
                    format!(
                        "{sentence} Its sender is told: ICMP type {kind}, code {code}, unless too many were of late."
                    )
                }
                Some(why) => format!("{} Its sender is not told: {why}.", reason.sentence().trim()),
            },
            Verdict::Discard(reason) => reason.sentence().trim().to_string(),
            other => local(other).to_string(),
        }
    }

    /// Why the packet's sender can't be told of it, if so.
    fn silence(&self, told: Told) -> Option<String> {
        let Ok(ethernet) = Ethernet::new(self.frame) else { return Some("it is no frame".into()) };
        let port = self.from.port().and_then(|port| self.view.port(port));
        let is_many = port.is_some_and(|port| Station::of(ethernet.dst(), port.address).is_many());
        let from = Speaker { ports: self.view.ports, port: self.from.port(), is_usable: self.is_usable };
        match icmp::error(told, &self.frame[LINK..], is_many, 0, from) {
            Ok(_) => None,
            Err(Silence::Forbidden(why)) => Some(why.to_string()),
            Err(Silence::NoAddress) => Some("the router has no address to say it from".into()),
        }
    }

    /// The better first hop that the packet's sender is told of, unless too many were told of late.
    fn redirect(&self, leave: &Leave) -> Option<IpAddr> {
        let better = leave.redirect?;
        let may_be = match better {
            IpAddr::V4(better) => self.silence(Told::V4(IcmpError::redirect(better))).is_none(),
            IpAddr::V6(better) => self.redirect_v6(leave, better),
        };
        may_be.then_some(better)
    }

    fn redirect_v6(&self, leave: &Leave, better: Ipv6Addr) -> bool {
        let id = leave.decision.port;
        let Some(port) = self.view.port(id) else { return false };
        let (Ok(ethernet), packet) = (Ethernet::new(self.frame), &self.frame[LINK..]) else { return false };
        let Some((IpAddr::V6(sender), _)) = icmp::ends(packet) else { return false };
        let own = port.link_local.into();
        let (from, to) =
            (nd::Station { ether: port.address, ip: own }, nd::Station { ether: ethernet.src(), ip: sender });
        let message = nd::redirect(from, to, better, leave.decision.link.address(), packet);
        (self.is_usable)(id, IpAddr::V6(own)) && message.is_ok()
    }
}

/// Type and code of what a sender is told.
fn message(told: Told) -> (u8, u8) {
    match told {
        Told::V4(error) => (error.icmp_type.0, error.code),
        Told::V6(error) => (error.icmp_type.0, error.code),
    }
}

/// What becomes of packets to an address, and the neighbor that an echo request of the router would go to.
pub(super) fn chosen(
    router: &SharedRouter,
    tables: &Tables,
    to: IpAddr,
    turn: &Turn<'_>,
    now: Duration,
) -> (Outcome, Option<ChosenJson>) {
    let readers = router.readers();
    let view = View { ports: readers.ports.read(turn), v4: &readers.v4, v6: &readers.v6, turn };
    let link = ether(SENDER, SENDER);
    let (frame, found) = match to {
        IpAddr::V4(to) => {
            let from = view.ports.iter().find_map(|port| port.v4.first()).map_or(0, |(own, _)| *own);
            let frame = link.ip4(ip4().src(from.to_be_bytes()).dst(to).icmp_echo(1, 1)).bytes();
            let found = view.v4.explain(turn, to.to_bits(), |method| number(&frame, method));
            (frame, found)
        }
        IpAddr::V6(to) => {
            let from = view.ports.iter().find_map(|port| port.v6.first()).map_or(0, |(own, _)| *own);
            let frame = link.ip6(ip6().src(from.to_be_bytes()).dst(to).icmp_echo(1, 1)).bytes();
            let found = view.v6.explain(turn, to.to_bits(), |method| number(&frame, method));
            (frame, found)
        }
    };
    let outcome = found.decision.outcome;
    let steps = Steps {
        frame: &frame,
        from: Origin::Router,
        tables,
        view,
        is_usable: &|_, _| true,
        now,
        stages: Vec::new(),
        ends_at: None,
    };
    let next_hop = match found.neighbor {
        Some(neighbor) if !found.on_link => view.v4.address_of(neighbor),
        _ => to,
    };
    let leads = matches!(outcome, Outcome::Forward | Outcome::Unresolved | Outcome::Failed);
    (outcome, leads.then(|| steps.chosen(&found, next_hop)))
}

#[cfg(test)]
mod tests {
    use super::super::ip_router::CLASS;
    use artery_engine::Bench;
    use artery_wire::IcmpType;
    use artery_wire::build::{ether, ip4};
    use serde_json::{Value, json};

    const CONFIG: &str = "
        PORT a 10.0.1.1/24 2001:db8:1::1/64 ETHER 2:0:0:0:0:1 RPF strict,
        PORT b 10.0.2.1/24 2001:db8:2::1/64 ETHER 2:0:0:0:0:2 MTU 1000,
        NEIGHBOR b 10.0.2.254 2:0:0:0:2:fe, NEIGHBOR b 10.0.2.253 2:0:0:0:2:fd,
        ROUTE 0.0.0.0/0 10.0.2.254, ROUTE 20.0.0.0/8 10.0.2.254 10.0.2.253, ROUTE 21.0.0.0/8 blackhole, DAD false";

    fn router() -> Bench {
        let setup = Bench::setup(&CLASS, CONFIG).inputs(2).outputs(3);
        let mut bench = setup.build().unwrap_or_else(|errors| panic!("{errors:?}"));
        bench.run();
        bench
    }
    #[track_caller]
    fn explain(question: &str) -> Value {
        let text =
            router().read("explain_json", question).unwrap_or_else(|error| panic!("{question}: {error}"));
        serde_json::from_str(&text).unwrap()
    }
    fn stages(explained: &Value) -> Vec<String> {
        let line = |stage: &Value| {
            format!("{}: {}", stage["stage"].as_str().unwrap(), stage["text"].as_str().unwrap())
        };
        explained["stages"].as_array().unwrap().iter().map(line).collect()
    }

    #[test]
    fn each_step_of_a_packet_is_told() {
        let explained = explain("a 10.0.1.9:1234 > 8.8.8.8:53 udp ttl 9");
        assert_eq!(
            stages(&explained),
            [
                "arrival: by a, in a frame to the port's own station",
                "header: IPv4, 28 bytes, for 9 hops",
                "source: 10.0.1.9; the check of the way back is strict",
                "route: 0.0.0.0/0 matches 8.8.8.8, static",
                "next-hop: via 10.0.2.254 on b",
                "options: none that keeps it from going on",
                "ttl: 9 hops left, 8 when it leaves",
                "mtu: 28 bytes, where 1000 fit",
                "neighbor: 10.0.2.254 on b: PERMANENT, at 02:00:00:00:02:fe",
                "output: by b, from 02:00:00:00:00:02 to 02:00:00:00:02:fe",
            ]
        );
        let verdict = &explained["verdict"];
        assert_eq!((&verdict["kind"], &verdict["port"]), (&json!("forward"), &json!("b")));
        assert_eq!((&explained["in"], &verdict["text"]), (&json!("a"), &json!("leaves by b")));
    }

    #[test]
    fn the_step_that_ends_a_packet_is_the_last_and_names_the_counter() {
        for (question, stage, reason) in [
            ("a 10.0.2.9 > 8.8.8.8", "source", "reverse-path"),
            ("a 10.0.1.9 > 21.1.1.1", "route", "blackhole"),
            ("b 10.0.2.9 > 10.0.1.7 ttl 1", "ttl", "ttl-expired"),
            ("a 10.0.1.9 > 8.8.8.8 len 1001 df", "mtu", "mtu-exceeded"),
            ("a 10.0.1.9 > 8.8.8.8 to 2:0:0:0:9:9", "arrival", "other-station"),
            ("a 2001:db8:1::9 > 3fff::1", "route", "no-route"),
            ("a frame 0102", "arrival", "too-short"),
        ] {
            let explained = explain(question);
            let last = explained["stages"].as_array().unwrap().last().unwrap().clone();
            assert_eq!((&last["stage"], &last["ok"]), (&json!(stage), &json!(false)), "{question}");
            assert_eq!(explained["verdict"]["reason"], reason, "{question}");
        }
    }

    #[test]
    fn an_error_is_told_unless_that_is_forbidden() {
        let expired = explain("b 10.0.2.9 > 10.0.1.7 ttl 1");
        assert_eq!(
            (&expired["verdict"]["icmp_type"], &expired["verdict"]["icmp_code"]),
            (&json!(11), &json!(0))
        );
        let error = ip4().src("10.0.2.9").dst("10.0.1.7").ttl(1).icmp(IcmpType::UNREACHABLE, 1, [0; 4]);
        let error = ether("02:00:00:00:00:02", "02:00:00:00:02:fd").ip4(error).bytes();
        let hex: String = error.iter().map(|byte| format!("{byte:02x} ")).collect();
        let silent = explain(&format!("b frame {hex}"));
        assert_eq!(
            (&silent["verdict"]["kind"], &silent["verdict"]["icmp_type"]),
            (&json!("error"), &Value::Null),
            "{silent}"
        );
        assert!(silent["verdict"]["text"].as_str().unwrap().ends_with("not told: no error about an error."));
    }

    #[test]
    fn of_several_next_hops_the_flow_says_which() {
        let explained = explain("a 10.0.1.9:1 > 20.0.0.1:2 tcp");
        let stage = &explained["stages"][4];
        assert_eq!((&stage["members"], &stage["method"]), (&json!(2), &json!("hash")));
        let member = stage["member"].as_u64().unwrap();
        let gateway = ["10.0.2.253", "10.0.2.254"][member as usize];
        assert_eq!(explained["verdict"]["next_hop"], gateway);
        let text = stage["text"].as_str().unwrap();
        assert!(
            text.starts_with(&format!("via {gateway} on b, number {} of 2, by hash of flow 0x", member + 1)),
            "{text}"
        );
    }

    #[test]
    fn what_waits_or_is_for_the_router_is_told_so() {
        let held = explain("host 10.0.1.1 > 10.0.2.9");
        assert_eq!((&held["verdict"]["kind"], &held["in"]), (&json!("hold"), &json!("host")));
        assert_eq!(held["verdict"]["text"], "waits until the link address of 10.0.2.9 is known");
        assert_eq!(explain("a 10.0.1.9 > 10.0.2.1 icmp")["verdict"]["kind"], "answer");
        assert_eq!(explain("a 10.0.1.9:1 > 10.0.2.1:2 udp")["verdict"]["kind"], "host");
    }

    #[test]
    fn a_question_that_is_not_understood_is_answered_with_how_to_ask() {
        for (question, expected) in [
            ("", "by which port? write 'PORT FLOW', or 'host FLOW'"),
            ("c 10.0.0.1 > 10.0.0.2", "no port is called 'c': packets come by a, b, or from 'host'"),
            ("a", "which packet? write it as "),
        ] {
            let error = router().read("explain_json", question).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
