//! Explains the verdict on a packet, step by step.
//!
//! The verdict comes from the same functions that classify packets in transit; the steps before it are read
//! from the same tables. Nothing is sent, counted or changed, and no neighbor is solicited.
use super::chosen::{describe_next_hop, flow_number};
use super::classify::{LocalState, classify};
use super::explained_verdict::{ExplainedFrame, describe_local};
use super::explanation::{Explanation, Facts, Stage};
use super::json::{SCHEMA, port_name, to_json};
use super::route_text::port_names;
use super::router_worker;
use super::router_worker::IpRouter;
use super::show_ports::reverse_path;
use super::verdict::{
    EgressPlan, IngressInfo, LinkDestination, Origin, RouterVerdict, TablesView, is_forwardable,
};
use artery_common::flow_text::{PacketSpec, parse_packet};
use artery_common::hex::to_hex;
use artery_engine::{Context, DropReason};
use artery_forward::fast_path::LINK;
use artery_l3::next_hop::Hop;
use artery_l3::path::{Explained, Method, PathReader};
use artery_l3::router::{GroupView, Ip, Tables};
use artery_wire::{EtherAddr, EtherType, Ethernet, Ipv4, Ipv6, describe};
use std::net::IpAddr;
use std::time::Duration;

/// The source MAC address of frames in explanations, which does not affect the result.
const SENDER: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xfe]);

/// The handler `explain_json`: `PORT|host [towards ADDRESS] FLOW`. With an address it explains a packet that
/// is redirected there, as to a member of a service.
pub(super) fn explain_packet(r: &mut IpRouter, text: &str, cx: &mut Context<'_>) -> Result<String, String> {
    let now = router_worker::now(cx);
    let tables = r.router.lock_tables();
    let text = text.trim();
    let (came_by, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (towards, flow) = parse_towards(rest.trim_start())?;
    let from = parse_origin(came_by, &tables)?;
    let readers = r.router.readers();
    let turn = cx.turn();
    let ports = readers.ports.read(turn);
    let view = TablesView { ports, v4: &readers.v4, v6: &readers.v6, turn };
    let station = from.port().and_then(|port| view.port(port)).map_or(SENDER, |port| port.address);
    let frame = match parse_packet(flow)? {
        PacketSpec::Flow(flow) => flow.build_frame(station, SENDER)?,
        PacketSpec::Frame(bytes) => bytes,
    };
    let has_host =
        r.slow_path.settings.has_host_ports || r.slow_path.host_address(&r.router, cx.outputs()).is_some();
    let own = LocalState { is_usable: &|port, address| r.slow_path.is_usable(port, address), has_host };
    let came = IngressInfo { from, to: LinkDestination::Ours, redirected_to: towards };
    let about = ExplainedFrame { frame: &frame, ingress: came, view, own };
    let steps = ExplanationSteps { about, tables: &tables, now, stages: Vec::new(), ends_at: None };
    Ok(to_json(&steps.explain()))
}

/// The address that a packet is redirected to instead of its destination, if one is given, and the
/// rest of the query.
fn parse_towards(text: &str) -> Result<(Option<IpAddr>, &str), String> {
    let Some(rest) = text.strip_prefix("towards ") else { return Ok((None, text)) };
    let (address, flow) = rest.trim_start().split_once(char::is_whitespace).unwrap_or((rest, ""));
    let address = address.parse().map_err(|_| format!("towards {address}: no address"))?;
    Ok((Some(address), flow))
}

/// The origin of the packet: a port by its name, or the host.
fn parse_origin(came_by: &str, tables: &Tables) -> Result<Origin, String> {
    match (came_by, tables.find_port(came_by)) {
        (_, Some(port)) => Ok(Origin::Port(port)),
        ("host", None) => Ok(Origin::Host),
        ("", None) => Err("by which port? write 'PORT FLOW', or 'host FLOW'".into()),
        _ => {
            let names = port_names(tables);
            Err(format!("no port is called '{came_by}': packets come by {names}, or from 'host'"))
        }
    }
}

/// An explanation in the making.
struct ExplanationSteps<'a> {
    about: ExplainedFrame<'a>,
    tables: &'a Tables,
    now: Duration,
    stages: Vec<Stage>,
    /// The stage that ends the packet, and why.
    ends_at: Option<(&'static str, DropReason)>,
}

/// The header fields that both families have.
struct HeaderSummary<A> {
    version: u8,
    source: A,
    destination: A,
    hops: u8,
    len: usize,
    /// Whether the packet has its declared length.
    is_sound: bool,
}

impl ExplanationSteps<'_> {
    fn explain(mut self) -> Explanation {
        let verdict = self.classify();
        let ExplainedFrame { frame, ingress: came, view, .. } = self.about;
        Explanation {
            schema: SCHEMA,
            packet: describe::frame(frame).to_string(),
            frame: to_hex(frame),
            came_by: came.from.port().map_or("host".to_string(), |port| port_name(view.ports, port)),
            verdict: self.about.verdict_json(&verdict),
            stages: self.stages,
        }
    }

    fn classify(&mut self) -> RouterVerdict {
        let ExplainedFrame { frame, ingress: came, view, own } = self.about;
        let came = match view.ingress_info(frame, came.from) {
            Ok(arrived) => IngressInfo { redirected_to: came.redirected_to, ..arrived },
            Err(reason) => return self.end_on_arrival(reason),
        };
        self.about.ingress = came;
        let verdict = classify(frame, usize::MAX, came, &view, own, &mut |method| flow_number(frame, method));
        let packet = frame.get(LINK..).unwrap_or_default();
        match Ethernet::new(frame).map(|ethernet| ethernet.ether_type()) {
            Ok(EtherType::IPV4) => self.explain_steps(&verdict, parse_ipv4_header(packet), view.v4),
            Ok(EtherType::IPV6) => self.explain_steps(&verdict, parse_ipv6_header(packet), view.v6),
            _ => {
                self.ends_at = verdict.drop_reason().map(|reason| ("arrival", reason));
                self.add_stage("arrival", format!("{}, {}", self.describe_arrival(), describe::frame(frame)));
            }
        }
        verdict
    }

    fn end_on_arrival(&mut self, reason: DropReason) -> RouterVerdict {
        self.ends_at = Some(("arrival", reason));
        let text = match reason {
            DropReason::PortDown => "by a port that is gone".to_string(),
            _ => format!("{} bytes are not a frame", self.about.frame.len()),
        };
        self.add_stage("arrival", text);
        RouterVerdict::Discard(reason)
    }

    /// Adds the steps of an IP packet, up to where it ends.
    fn explain_steps<A: Ip>(
        &mut self,
        verdict: &RouterVerdict,
        head: Option<HeaderSummary<A>>,
        path: &PathReader<A>,
    ) {
        self.ends_at = verdict
            .drop_reason()
            .map(|reason| (stage_of(reason, head.as_ref().is_some_and(|head| head.is_sound)), reason));
        if !self.add_stage("arrival", self.describe_arrival()) {
            return;
        }
        let Some(head) = head else {
            self.ends_at = self.ends_at.map(|(_, reason)| ("header", reason));
            self.add_stage("header", "its IP header is not whole".to_string());
            return;
        };
        let text = format!("IPv{}, {} bytes, for {} hops", head.version, head.len, head.hops);
        if !self.add_stage("header", text)
            || !self.add_stage("source", self.describe_source(head.source.to_ip()))
        {
            return;
        }
        let ExplainedFrame { frame, ingress: came, view, .. } = self.about;
        let towards = came.redirected_to.and_then(A::from_ip).unwrap_or(head.destination);
        let found = path.explain_path(view.turn, towards, |method| flow_number(frame, method));
        if !self.explain_route(towards) || !self.next_hop(&found) {
            return;
        }
        if is_forwardable(found.decision.outcome) {
            self.explain_egress(verdict, &head, &found);
        } else {
            self.explain_local(verdict);
        }
    }

    fn describe_source(&self, source: IpAddr) -> String {
        let ExplainedFrame { ingress: came, view, .. } = self.about;
        let port = came.from.port().and_then(|port| view.port(port));
        let check = port.map_or("off", |port| reverse_path(port.settings.rpf));
        format!("{source}; the check of the way back is {check}")
    }

    fn explain_route<A: Ip>(&mut self, destination: A) -> bool {
        let to = destination.to_ip();
        let Some(route) = self.tables.lookup_route(to) else {
            return self.add_stage("route", format!("no route matches {to}"));
        };
        let (prefix, source) = (route.prefix.to_string(), route.source.name());
        let text = format!("{prefix} matches {to}, {source}");
        let facts = Facts {
            prefix: Some(prefix),
            source: Some(source),
            group: Some(route.group),
            ..Facts::default()
        };
        self.add_stage_with("route", text, facts)
    }

    /// Adds the next hop that the route's method chooses.
    fn next_hop(&mut self, found: &Explained) -> bool {
        let Some(group) = self.tables.group_view(found.group) else { return true };
        let slot = found.member.unwrap_or(0);
        let hop = self.tables.group_member(found.group, slot);
        let at = hop.and_then(|hop| group.members.iter().position(|member| member.hop == hop));
        let Some((hop, at)) = hop.zip(at) else { return true };
        let mut facts = Facts { group: Some(found.group), ..Facts::default() };
        let mut text = self.describe_hop(hop);
        if group.members.len() > 1 {
            let method = group.selection.method();
            (facts.member, facts.members) = (Some(at), Some(group.members.len()));
            facts.method = Some(group.selection.name());
            facts.flow = Some(flow_number(self.about.frame, method)).filter(|_| method != Method::PerPacket);
            text = format!("{text}, {}", describe_selection(&group, at, facts.flow));
        }
        self.add_stage_with("next-hop", text, facts)
    }

    fn describe_hop(&self, hop: Hop) -> String {
        let port = hop.port().map(|port| port_name(self.about.view.ports, port)).unwrap_or_default();
        match hop {
            Hop::Gateway { address, .. } => format!("via {address} on {port}"),
            Hop::OnLink { .. } => format!("on the link of {port}"),
            Hop::End { outcome, port: Some(_) } => format!("{outcome}, of {port}"),
            Hop::End { outcome, port: None } => outcome.to_string(),
        }
    }

    /// Adds the steps of egress.
    fn explain_egress<A: Ip>(&mut self, verdict: &RouterVerdict, head: &HeaderSummary<A>, found: &Explained) {
        if !self.add_stage("options", "none that keeps it from going on".to_string()) {
            return;
        }
        let hops = match self.about.ingress.from.port() {
            Some(_) => format!("{} hops left, {} when it leaves", head.hops, head.hops.saturating_sub(1)),
            None => format!("{} hops left, as the host sends it", head.hops),
        };
        if !self.add_stage("ttl", hops) {
            return;
        }
        let mtu = found.decision.mtu;
        let is_cut =
            matches!(verdict, RouterVerdict::Forward(leave) | RouterVerdict::Hold(leave) if leave.is_cut);
        let cut = if is_cut { ": cut into fragments" } else { "" };
        if !self.add_stage("mtu", format!("{} bytes, where {mtu} fit{cut}", head.len)) {
            return;
        }
        let ExplainedFrame { view, .. } = self.about;
        let to = self.about.ingress.redirected_to.unwrap_or(head.destination.to_ip());
        let next_hop = view.next_hop(found, to);
        let chosen = describe_next_hop(self.tables, view.ports, found, next_hop, self.now);
        let at = chosen.lladdr.as_ref().map_or(String::new(), |lladdr| format!(", at {lladdr}"));
        let text = format!("{next_hop} on {}: {}{at}", chosen.port, chosen.state);
        let facts = Facts { chosen: Some(chosen), ..Facts::default() };
        if !self.add_stage_with("neighbor", text, facts) {
            return;
        }
        if let RouterVerdict::Forward(leave) = verdict {
            self.explain_output(leave);
        }
    }

    fn explain_output(&mut self, leave: &EgressPlan) {
        let ExplainedFrame { view, .. } = self.about;
        let port = port_name(view.ports, leave.decision.port);
        let from = view.port(leave.decision.port).map(|port| port.address.to_string()).unwrap_or_default();
        let to = leave.decision.link.address().map(|link| link.to_string()).unwrap_or_default();
        self.add_stage("output", format!("by {port}, from {from} to {to}"));
        if let Some(better) = self.about.redirect_target(leave) {
            self.add_stage("redirect", format!("its sender gets a redirect: {better} is a better first hop"));
        }
    }

    /// To the router itself, or to all or a group on a link.
    fn explain_local(&mut self, verdict: &RouterVerdict) {
        if self.add_stage("options", "none that is refused".to_string()) {
            self.add_stage("local", describe_local(verdict).to_string());
        }
    }

    /// Adds a step; returns whether the packet continues after it.
    fn add_stage(&mut self, stage: &'static str, text: String) -> bool {
        self.add_stage_with(stage, text, Facts::default())
    }

    fn add_stage_with(&mut self, stage: &'static str, text: String, facts: Facts) -> bool {
        let end = self.ends_at.filter(|(at, _)| *at == stage).map(|(_, reason)| reason);
        let text = end.map_or(text.clone(), |reason| {
            format!("{text}: {}. {}", reason.name(), reason.sentence().trim())
        });
        self.stages.push(Stage { stage, ok: end.is_none(), text, facts });
        end.is_none()
    }

    fn describe_arrival(&self) -> String {
        let ExplainedFrame { ingress: came, view, .. } = self.about;
        let Some(port) = came.from.port() else { return "from the host".to_string() };
        let destination = match came.to {
            LinkDestination::Ours => "the port's own MAC address",
            LinkDestination::All => "the broadcast address",
            LinkDestination::Group => "a group",
            LinkDestination::Other => "another MAC address",
        };
        format!("by {}, in a frame to {destination}", port_name(view.ports, port))
    }
}

fn parse_ipv4_header(packet: &[u8]) -> Option<HeaderSummary<u32>> {
    let ip = Ipv4::new(packet).ok()?;
    let (source, destination) = (ip.src().to_bits(), ip.dst().to_bits());
    let is_sound = ip.check_total_length().is_ok();
    Some(HeaderSummary {
        version: 4,
        source,
        destination,
        hops: ip.ttl(),
        len: ip.total_length().into(),
        is_sound,
    })
}

fn parse_ipv6_header(packet: &[u8]) -> Option<HeaderSummary<u128>> {
    let ip = Ipv6::new(packet).ok()?;
    let (source, destination) = (ip.src().to_bits(), ip.dst().to_bits());
    let len = Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length());
    let is_sound = ip.check_payload_length().is_ok();
    Some(HeaderSummary { version: 6, source, destination, hops: ip.hop_limit(), len, is_sound })
}

/// Of several next hops: how this one was chosen.
fn describe_selection(group: &GroupView, at: usize, flow: Option<u32>) -> String {
    let (method, count) = (group.selection.name(), group.members.len());
    let alive = group.members.iter().filter(|member| member.is_alive).count();
    let of = if alive == count { format!("of {count}") } else { format!("of {count}, {alive} of them up") };
    match flow {
        Some(flow) => format!("number {} {of}, by {method} of flow {flow:#010x}", at + 1),
        None => format!("one {of}; each packet takes another ({method})"),
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
        R::NextHopDown => "next-hop",
        R::NeighborFailed => "neighbor",
        R::Local | R::Unclaimed => "local",
        _ => "route",
    }
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
        ROUTE 0.0.0.0/0 10.0.2.254, ROUTE 20.0.0.0/8 10.0.2.254 10.0.2.253, ROUTE 21.0.0.0/8 blackhole, DAD \
        false";

    fn router_of(config: &str) -> Bench {
        let setup = Bench::setup(&CLASS, config).inputs(2).outputs(3);
        let mut bench = setup.build().unwrap_or_else(|errors| panic!("{errors:?}"));
        bench.run();
        bench
    }
    fn router() -> Bench {
        router_of(&format!("{CONFIG}, HOST 2:0:0:0:9:9"))
    }
    #[track_caller]
    fn ask(mut router: Bench, question: &str) -> Value {
        let text =
            router.read("explain_json", question).unwrap_or_else(|error| panic!("{question}: {error}"));
        serde_json::from_str(&text).unwrap()
    }
    #[track_caller]
    fn explain(question: &str) -> Value {
        ask(router(), question)
    }
    #[track_caller]
    fn explain_without_host(question: &str) -> Value {
        ask(router_of(CONFIG), question)
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
                "arrival: by a, in a frame to the port's own MAC address",
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
        assert_eq!(expired["verdict"]["icmp_type"], 11);
        assert_eq!(expired["verdict"]["icmp_code"], 0);
        let error = ip4().src("10.0.2.9").dst("10.0.1.7").ttl(1).icmp(IcmpType::UNREACHABLE, 1, [0; 4]);
        let error = ether("02:00:00:00:00:02", "02:00:00:00:02:fd").ip4(error).bytes();
        let hex: String = error.iter().map(|byte| format!("{byte:02x} ")).collect();
        let silent = explain(&format!("b frame {hex}"));
        assert_eq!(silent["verdict"]["kind"], "error", "{silent}");
        assert_eq!(silent["verdict"]["icmp_type"], Value::Null, "{silent}");
        let expected = "gets no error: no error about an error.";
        assert!(silent["verdict"]["text"].as_str().unwrap().ends_with(expected));
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
        let expected = format!("via {gateway} on b, number {} of 2, by hash of flow 0x", member + 1);
        assert!(text.starts_with(&expected), "{text}");
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
    fn where_no_host_is_what_is_for_it_ends_and_its_sender_may_be_told() {
        let to_port = explain_without_host("a 10.0.1.9:1 > 10.0.2.1:2 udp");
        let verdict = &to_port["verdict"];
        assert_eq!((&verdict["reason"], &verdict["icmp_code"]), (&json!("local"), &json!(3)));
        assert_eq!(to_port["stages"].as_array().unwrap().last().unwrap()["stage"], "local");
        let verdict = &explain_without_host("a 10.0.1.9:1 > 10.0.2.1:2 tcp")["verdict"];
        assert_eq!((&verdict["kind"], &verdict["reason"]), (&json!("discard"), &json!("local")));
        // Nor does the host get packets that it sent itself.
        assert_eq!(explain("host 10.0.1.1:1 > 10.0.2.1:2 tcp")["verdict"]["reason"], "local");
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
