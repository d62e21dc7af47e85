//! Why a packet goes where it goes: the router's own judgement of it, spelt out step by step.
//!
//! What becomes of the packet is said by the very functions that say it of packets on their way; the steps before are
//! told from the same tables. Nothing is sent, counted or changed, and no neighbor is asked.
use super::chosen::{chosen, number};
use super::explained_verdict::{About, local};
use super::explanation::{Explanation, Facts, Stage};
use super::flow_text::{Described, described};
use super::handlers;
use super::ip_router::IpRouter;
use super::judge::{Own, judge};
use super::route_text::port_names;
use super::show_ports::reverse_path;
use super::show_routes::{SCHEMA, json, name};
use super::slow::LINK;
use super::verdict::{Came, Leave, Origin, Station, Verdict, View, leads_on};
use artery_engine::{Context, DropReason};
use artery_table::next_hop::Hop;
use artery_table::path::{Explained, Method, PathReader};
use artery_table::router::{GroupView, Ip, Tables};
use artery_wire::{EtherAddr, EtherType, Ethernet, Ipv4, Ipv6, describe};
use std::net::IpAddr;
use std::time::Duration;

/// The station that frames come from in explanations: whoever it is makes no difference.
const SENDER: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xfe]);

/// The handler `explain_json`: `PORT|host [towards ADDRESS] FLOW`; with an address, of a packet that goes by
/// that in the place of its destination, as to a member of a service.
pub(super) fn handler(r: &mut IpRouter, text: &str, cx: &mut Context<'_>) -> Result<String, String> {
    let now = handlers::now(cx);
    let tables = r.router.tables();
    let text = text.trim();
    let (came_by, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (towards, flow) = parse_towards(rest.trim_start())?;
    let from = origin(came_by, &tables)?;
    let readers = r.router.readers();
    let turn = cx.turn();
    let ports = readers.ports.read(turn);
    let view = View { ports, v4: &readers.v4, v6: &readers.v6, turn };
    let station = from.port().and_then(|port| view.port(port)).map_or(SENDER, |port| port.address);
    let frame = match described(flow)? {
        Described::Flow(flow) => flow.frame(station, SENDER)?,
        Described::Frame(bytes) => bytes,
    };
    let has_host = r.slow.settings.has_host_ports || r.slow.host(&r.router, cx.outputs()).is_some();
    let own = Own { is_usable: &|port, address| r.slow.is_usable(port, address), has_host };
    let came = Came { from, to: Station::Ours, towards };
    let about = About { frame: &frame, came, view, own };
    let steps = Steps { about, tables: &tables, now, stages: Vec::new(), ends_at: None };
    Ok(json(&steps.explain()))
}

/// The address that a packet goes by in the place of its destination, if one is given, and the rest of the
/// question.
fn parse_towards(text: &str) -> Result<(Option<IpAddr>, &str), String> {
    let Some(rest) = text.strip_prefix("towards ") else { return Ok((None, text)) };
    let (address, flow) = rest.trim_start().split_once(char::is_whitespace).unwrap_or((rest, ""));
    let address = address.parse().map_err(|_| format!("towards {address}: no address"))?;
    Ok((Some(address), flow))
}

/// Where a packet comes from that is said to come by this port, or from the host.
fn origin(came_by: &str, tables: &Tables) -> Result<Origin, String> {
    match (came_by, tables.port(came_by)) {
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
struct Steps<'a> {
    about: About<'a>,
    tables: &'a Tables,
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
        let About { frame, came, view, .. } = self.about;
        Explanation {
            schema: SCHEMA,
            packet: describe::frame(frame).to_string(),
            came_by: came.from.port().map_or("host".to_string(), |port| name(view.ports, port)),
            verdict: self.about.verdict(&verdict),
            stages: self.stages,
        }
    }

    fn judge(&mut self) -> Verdict {
        let About { frame, came, view, own } = self.about;
        let came = match view.came(frame, came.from) {
            Ok(arrived) => Came { towards: came.towards, ..arrived },
            Err(reason) => return self.end_on_arrival(reason),
        };
        self.about.came = came;
        let verdict = judge(frame, usize::MAX, came, &view, own, &mut |method| number(frame, method));
        let packet = frame.get(LINK..).unwrap_or_default();
        match Ethernet::new(frame).map(|ethernet| ethernet.ether_type()) {
            Ok(EtherType::IPV4) => self.walk(&verdict, head4(packet), view.v4),
            Ok(EtherType::IPV6) => self.walk(&verdict, head6(packet), view.v6),
            _ => {
                self.ends_at = verdict.reason().map(|reason| ("arrival", reason));
                self.stage("arrival", format!("{}, {}", self.arrived(), describe::frame(frame)));
            }
        }
        verdict
    }

    fn end_on_arrival(&mut self, reason: DropReason) -> Verdict {
        self.ends_at = Some(("arrival", reason));
        let text = match reason {
            DropReason::PortDown => "by a port that is gone".to_string(),
            _ => format!("{} bytes are no frame", self.about.frame.len()),
        };
        self.stage("arrival", text);
        Verdict::Discard(reason)
    }

    /// Tells of the steps of an IP packet as far as it comes.
    fn walk<A: Ip>(&mut self, verdict: &Verdict, head: Option<Head<A>>, path: &PathReader<A>) {
        self.ends_at = verdict
            .reason()
            .map(|reason| (stage_of(reason, head.as_ref().is_some_and(|head| head.is_sound)), reason));
        if !self.stage("arrival", self.arrived()) {
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
        let About { frame, came, view, .. } = self.about;
        let towards = came.towards.and_then(A::from_ip).unwrap_or(head.destination);
        let found = path.explain(view.turn, towards, |method| number(frame, method));
        if !self.route(towards) || !self.next_hop(&found) {
            return;
        }
        if leads_on(found.decision.outcome) {
            self.leave(verdict, &head, &found);
        } else {
            self.arrive(verdict);
        }
    }

    fn source(&self, source: IpAddr) -> String {
        let About { came, view, .. } = self.about;
        let port = came.from.port().and_then(|port| view.port(port));
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
            facts.flow = Some(number(self.about.frame, method)).filter(|_| method != Method::PerPacket);
            text = format!("{text}, {}", several(&group, at, facts.flow));
        }
        self.stage_with("next-hop", text, facts)
    }

    fn hop(&self, hop: Hop) -> String {
        let port = hop.port().map(|port| name(self.about.view.ports, port)).unwrap_or_default();
        match hop {
            Hop::Gateway { address, .. } => format!("via {address} on {port}"),
            Hop::OnLink { .. } => format!("on the link of {port}"),
            Hop::End { outcome, port: Some(_) } => format!("{outcome}, of {port}"),
            Hop::End { outcome, port: None } => outcome.to_string(),
        }
    }

    /// On its way out of the router.
    fn leave<A: Ip>(&mut self, verdict: &Verdict, head: &Head<A>, found: &Explained) {
        if !self.stage("options", "none that keeps it from going on".to_string()) {
            return;
        }
        let hops = match self.about.came.from.port() {
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
        let About { view, .. } = self.about;
        let to = self.about.came.towards.unwrap_or(head.destination.to_ip());
        let next_hop = view.next_hop(found, to);
        let chosen = chosen(self.tables, view.ports, found, next_hop, self.now);
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
        let About { view, .. } = self.about;
        let port = name(view.ports, leave.decision.port);
        let from = view.port(leave.decision.port).map(|port| port.address.to_string()).unwrap_or_default();
        let to = leave.decision.link.address().map(|link| link.to_string()).unwrap_or_default();
        self.stage("output", format!("by {port}, from {from} to {to}"));
        if let Some(better) = self.about.redirect(leave) {
            self.stage("redirect", format!("its sender is told that {better} is a better first hop"));
        }
    }

    /// To the router itself, or to all or a group on a link.
    fn arrive(&mut self, verdict: &Verdict) {
        if self.stage("options", "none that is refused".to_string()) {
            self.stage("local", local(verdict).to_string());
        }
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

    fn arrived(&self) -> String {
        let About { came, view, .. } = self.about;
        let Some(port) = came.from.port() else { return "from the host".to_string() };
        let station = match came.to {
            Station::Ours => "the port's own station",
            Station::All => "all stations",
            Station::Group => "a group",
            Station::Other => "another station",
        };
        format!("by {}, in a frame to {station}", name(view.ports, port))
    }
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
        ROUTE 0.0.0.0/0 10.0.2.254, ROUTE 20.0.0.0/8 10.0.2.254 10.0.2.253, ROUTE 21.0.0.0/8 blackhole, DAD false";

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
    fn where_no_host_is_what_is_for_it_ends_and_its_sender_may_be_told() {
        let to_port = explain_without_host("a 10.0.1.9:1 > 10.0.2.1:2 udp");
        let verdict = &to_port["verdict"];
        assert_eq!((&verdict["reason"], &verdict["icmp_code"]), (&json!("local"), &json!(3)));
        assert_eq!(to_port["stages"].as_array().unwrap().last().unwrap()["stage"], "local");
        let verdict = &explain_without_host("a 10.0.1.9:1 > 10.0.2.1:2 tcp")["verdict"];
        assert_eq!((&verdict["kind"], &verdict["reason"]), (&json!("discard"), &json!("local")));
        // Nor does the host hear what it says itself.
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
