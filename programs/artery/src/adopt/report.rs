//! What a dry run found, for people and for programs.
use super::Findings;
use super::facts::Facts;
use super::share::{BASIS, Measured};
use artery_adopt::blockers::{Blocker, Bridging, Direction, Port};
use artery_adopt::kernel::Family;
use serde_json::{Value, json};

const FAMILIES: [(Family, &str); 2] = [(Family::V4, "IPv4"), (Family::V6, "IPv6")];

/// A table of ports, the lines of what keeps traffic, notes, and the share.
pub(super) fn text(findings: &Findings) -> String {
    let mut text = row(["PORT", "DRIVER", "XDP", "PATH", "IPV4", "IPV6", "IN/S", "OUT/S"]);
    for facts in &findings.ports {
        text += &port(facts, findings);
    }
    if findings.ports.is_empty() {
        text += "No Ethernet interface is up.\n";
    }
    text += match findings.blockers.is_empty() {
        true => "\nNothing keeps traffic between these ports in the kernel but routes that lead elsewhere.\n",
        false => "\nWhat stays with the kernel:\n",
    };
    for guard in &findings.blockers {
        text += &format!("  {guard}\n");
    }
    for note in &findings.notes {
        text += &format!("note: {note}\n");
    }
    text + &share(findings)
}

fn row(cells: [&str; 8]) -> String {
    let [port, driver, xdp, path, ipv4, ipv6, received, sent] = cells;
    format!("{port:<15} {driver:<12} {xdp:<8} {path:<11} {ipv4:<9} {ipv6:<9} {received:>10} {sent:>10}\n")
}

fn port(facts: &Facts, findings: &Findings) -> String {
    let name = &facts.port.name;
    let driver = if facts.driver.is_empty() { "-" } else { &facts.driver };
    let [ipv4, ipv6] =
        FAMILIES.map(|(family, _)| in_words(&facts.port, family, &findings.blockers, (true, true)));
    let rates = findings.measured.as_ref().and_then(|measured| rates(measured, name));
    let [received, sent] =
        rates.map_or(["-".to_owned(), "-".to_owned()], |rates| rates.map(|rate| format!("{rate:.0}")));
    let mut text =
        row([name, driver, facts.xdp(), findings.choice.best().name(), ipv4, ipv6, &received, &sent]);
    if let Some(bridge) = &facts.bridge {
        text += &format!("    adopted with {bridge}, whose member it is\n");
    }
    if facts.port.bridging == Bridging::Bridge {
        text += &format!("    {}\n", by_members(name, findings));
    }
    if let Some(vrf) = &facts.vrf {
        text += &format!("    routed by {vrf}\n");
    }
    if let Some(carrier) = &facts.carrier {
        text += &format!("    adopted with {carrier}, whose VLAN it is\n");
    } else if let Some(why) = findings.choice.why(facts) {
        text += &format!("    {why}\n");
    }
    text
}

/// The members that packets of a bridge arrive and leave by.
fn by_members(bridge: &str, findings: &Findings) -> String {
    let is_member = |facts: &&Facts| facts.bridge.as_deref() == Some(bridge);
    let names: Vec<&str> =
        findings.ports.iter().filter(is_member).map(|facts| facts.port.name.as_str()).collect();
    match names.is_empty() {
        true => "a bridge without members".to_owned(),
        false => format!("a bridge, by its members: {}", names.join(", ")),
    }
}

/// Packets received and sent by an interface, in a second.
fn rates(measured: &Measured, name: &str) -> Option<[f64; 2]> {
    let packets = measured.interfaces.get(name)?;
    let seconds = measured.time.as_secs_f64();
    (seconds > 0.0).then(|| [packets.received, packets.passed].map(|packets| packets as f64 / seconds))
}

/// Which of a port's packets would be accelerated: "established" means those of established connections.
/// `takes` says whether anything is forwarded from it, `sends` whether anything is to it, where no blocker
/// excludes it.
pub(super) fn in_words(
    port: &Port,
    family: Family,
    guards: &[Blocker],
    (takes, sends): (bool, bool),
) -> &'static str {
    let is_about = |guard: &&Blocker| guard.blocks_from(port, family) || guard.blocks_to(port, family);
    let (passed, others): (Vec<_>, Vec<_>) =
        guards.iter().filter(is_about).partition(|guard| guard.is_passed);
    let kept_from = !takes || others.iter().any(|guard| guard.blocks_from(port, family));
    let kept_to = !sends || others.iter().any(|guard| guard.blocks_to(port, family));
    match (kept_from, kept_to) {
        (false, false) if !passed.is_empty() => "established",
        (false, false) => "fast",
        (false, true) => "fast-in",
        (true, false) => "fast-out",
        (true, true) => "kernel",
    }
}

fn share(findings: &Findings) -> String {
    let Some(measured) = &findings.measured else { return String::new() };
    let seconds = measured.time.as_secs_f64();
    let mut text = format!("\nIn {seconds:.1} s the kernel forwarded:\n");
    let mut is_estimated = false;
    for (family, name) in FAMILIES {
        let packets = measured.of(family);
        let estimate = measured.share(family, &ports(findings), &findings.blockers);
        let would = estimate.map(|share| format!(", of which {} would be accelerated", percent(share)));
        is_estimated |= would.is_some();
        text += &format!("  {} of {} {name} packets", packets.passed, packets.received);
        text += &format!("{}\n", would.unwrap_or_default());
    }
    match is_estimated {
        true => text + BASIS + "\n",
        false => text + "So no share can be shown; try again while traffic flows.\n",
    }
}

fn percent((least, most): (f64, f64)) -> String {
    let [least, most] = [least, most].map(|part| format!("{:.0} %", part * 100.0));
    if least == most {
        format!("about {least}")
    } else {
        format!("between {least} and {most} (not all could be read)")
    }
}

fn ports(findings: &Findings) -> Vec<&Port> {
    // What arrives at members of bridges, and is routed, arrives at the bridge.
    let is_routed = |facts: &&Facts| !matches!(facts.port.bridging, Bridging::Member(_));
    findings.ports.iter().filter(is_routed).map(|facts| &facts.port).collect()
}

/// The same as one object.
pub(super) fn json(findings: &Findings) -> Value {
    let port = |facts: &Facts| {
        let rates = findings.measured.as_ref().and_then(|measured| rates(measured, &facts.port.name));
        json!({
            "name": facts.port.name,
            "index": facts.port.index,
            "driver": facts.driver,
            "xdp": facts.xdp(),
            "path": findings.choice.best().name(),
            "why": findings.choice.why(facts),
            "vrf": facts.vrf.as_ref().map(|vrf| json!({ "name": vrf.name, "table": vrf.table })),
            "ipv4": in_words(&facts.port, Family::V4, &findings.blockers, (true, true)),
            "ipv6": in_words(&facts.port, Family::V6, &findings.blockers, (true, true)),
            "received_per_second": rates.map(|[received, _]| received),
            "sent_per_second": rates.map(|[_, sent]| sent),
        })
    };
    let guard = |guard: &Blocker| {
        let port = findings.ports.iter().find(|facts| Some(facts.port.index) == guard.port);
        json!({
            "port": port.map(|facts| &facts.port.name),
            "family": guard.family.map(family_name),
            "direction": match guard.direction {
                Direction::In => "in",
                Direction::Out => "out",
                Direction::Both => "both",
            },
            "what": guard.what,
            "remedy": guard.remedy,
        })
    };
    json!({
        "schema_version": 1, "version": crate::report::VERSION,
        "ports": findings.ports.iter().map(port).collect::<Vec<_>>(),
        "kept": findings.blockers.iter().map(guard).collect::<Vec<_>>(),
        "notes": findings.notes,
        "kept_prefixes": findings.kept_prefixes,
        "traffic": findings.measured.as_ref().map(|measured| traffic(measured, findings)),
    })
}

pub(super) fn family_name(family: Family) -> &'static str {
    FAMILIES.iter().find(|(one, _)| *one == family).map_or("", |(_, name)| name)
}

fn traffic(measured: &Measured, findings: &Findings) -> Value {
    let of = |family| {
        let (packets, share) =
            (measured.of(family), measured.share(family, &ports(findings), &findings.blockers));
        json!({
            "received": packets.received,
            "forwarded": packets.passed,
            "share_least": share.map(|(least, _)| least),
            "share_most": share.map(|(_, most)| most),
        })
    };
    json!({ "seconds": measured.time.as_secs_f64(), "ipv4": of(Family::V4), "ipv6": of(Family::V6),
        "basis": BASIS })
}

#[cfg(test)]
mod tests {
    use super::super::choice::Choice;
    use super::super::facts;
    use super::*;
    use crate::adopt::share::Packets;
    use artery_adopt::blockers::BlockerKind;
    use artery_device::XdpFeatures;
    use std::time::Duration;

    fn findings() -> Findings {
        let features = XdpFeatures {
            redirects: true,
            sends_redirected: true,
            zero_copy: true,
            ..XdpFeatures::default()
        };
        let counted = |received, passed| Packets { received, passed };
        let ports = vec![
            facts::example(2, "eth0", Some(features)),
            facts::example(3, "eth1", Some(XdpFeatures::default())),
        ];
        Findings {
            choice: Choice::of(&ports, None),
            ports,
            blockers: vec![Blocker {
                port: Some(3),
                family: Some(Family::V4),
                direction: Direction::Out,
                kind: BlockerKind::Queueing,
                what: "tc: qdisc tbf".into(),
                remedy: "shown by: tc qdisc show dev eth1".into(),
                is_passed: false,
            }],
            notes: vec!["A program listens.".into()],
            kept_prefixes: 0,
            measured: Some(Measured {
                time: Duration::from_secs(2),
                ipv4: counted(110, 100),
                ipv6: counted(0, 0),
                interfaces: [("eth0", counted(100, 25)), ("eth1", counted(0, 75))]
                    .map(|(name, packets)| (name.to_owned(), packets))
                    .into(),
            }),
        }
    }

    #[test]
    fn a_report_has_ports_what_keeps_traffic_notes_and_the_share() {
        let expected = "\
PORT            DRIVER       XDP      PATH        IPV4      IPV6            IN/S      OUT/S
eth0            ice          native   tc          fast      fast              50         13
    as eth1, since all ports go by one path: ice does not run XDP programs itself
eth1            ice          generic  tc          fast-in   fast               0         38
    ice does not run XDP programs itself

What stays with the kernel:
  tc: qdisc tbf: IPv4 that leaves there stays with the kernel (shown by: tc qdisc show dev eth1)
note: A program listens.

In 2.0 s the kernel forwarded:
  100 of 110 IPv4 packets, of which about 25 % would be accelerated
  0 of 0 IPv6 packets
";
        assert_eq!(text(&findings()), format!("{expected}{BASIS}\n").replace("         13", "         12"));
    }

    #[test]
    fn without_traffic_or_ports_that_is_said() {
        let mut none = Findings { ports: Vec::new(), blockers: Vec::new(), notes: Vec::new(), ..findings() };
        none.measured.as_mut().unwrap().ipv4.passed = 0;
        let text = text(&none);
        for line in ["No Ethernet interface is up.", "Nothing keeps traffic", "So no share can be shown"] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn json_has_the_same() {
        let json = json(&findings());
        assert_eq!((&json["ports"][1]["path"], &json["ports"][1]["ipv4"]), (&"tc".into(), &"fast-in".into()));
        assert_eq!(json["kept"][0]["port"], "eth1");
        assert_eq!(json["kept"][0]["direction"], "out");
        assert_eq!(json["traffic"]["ipv4"]["share_most"], 0.25);
        assert_eq!(json["traffic"]["ipv6"]["share_most"], Value::Null);
    }
}
