//! What each port can do, and by what each command would use it.
use super::report::{Finding, Purpose};
use crate::adopt::{Choice, Facts, MultiBuffer};
use artery_adopt::MOST_MTU_OF_A_BUFFER;
use artery_adopt::blockers::{self, Port};
use artery_device::{Interface, InterfaceSurvey, LinkType, survey};
use std::thread;

/// The findings about ports, by their names.
pub(super) fn findings(names: &[String]) -> anyhow::Result<Vec<Finding>> {
    if names.is_empty() {
        let text = "no Ethernet interface is up, so no port was looked at";
        return Ok(vec![Finding::unknown("ports", text, "artery doctor PORT, or ip link set dev PORT up")]);
    }
    let all = survey();
    let looked: Vec<&InterfaceSurvey> =
        names.iter().filter_map(|name| all.iter().find(|one| &one.interface.name == name)).collect();
    let mut ports = Vec::new();
    for one in &looked {
        let port = blockers::port(&one.interface.name)?;
        ports.extend(port.filter(|port| is_ethernet(&one.interface) || port.is_tunnel()));
    }
    let facts: Vec<Facts> =
        ports.iter().map(|port: &Port| Facts::find(port.clone(), &ports)).collect::<anyhow::Result<_>>()?;
    let choice = Choice::of(&facts, None);
    let processors = thread::available_parallelism().map_or(1, |number| number.get() as u32);
    let mut findings = Vec::new();
    for one in looked {
        let facts = facts.iter().find(|facts| facts.port.index == one.interface.index);
        let found = of_port(one, facts, &choice, processors);
        findings.extend(found.into_iter().map(|finding| finding.at(&one.interface.name)));
    }
    Ok(findings)
}

/// Whether `adopt` can have a program there that forwards.
fn is_ethernet(interface: &Interface) -> bool {
    interface.link_type == Some(LinkType::ETHER) && interface.mac.is_some_and(|mac| mac != [0; 6])
}

fn of_port(one: &InterfaceSurvey, facts: Option<&Facts>, choice: &Choice, processors: u32) -> Vec<Finding> {
    let mut findings = vec![link(&one.interface), driver(one)];
    match facts {
        None => findings.push(not_adopted()),
        Some(facts) if facts.port.is_tunnel() => findings.push(tunnel()),
        Some(facts) => {
            findings.push(adopted(facts, choice));
            findings.extend(xdp(facts));
            findings.extend(tags(facts));
            findings.extend(joining(facts));
            findings.push(queues(one, facts, choice, processors));
            findings.push(mtu(facts, choice));
        }
    }
    findings.extend(used_by_engines(one));
    findings.extend(zero_copy(one));
    findings
}

fn link(interface: &Interface) -> Finding {
    let (check, name) = ("link", &interface.name);
    match (interface.up, interface.running) {
        (false, _) => Finding::slow(
            check,
            "the interface is down: nothing arrives",
            format!("ip link set dev {name} up"),
        ),
        (true, false) => Finding::slow(
            check,
            "the interface has no carrier: nothing arrives",
            "plug the cable in, or bring the other end up",
        ),
        (true, true) => Finding::ok(check, "the interface is up"),
    }
}

fn driver(one: &InterfaceSurvey) -> Finding {
    let name = if one.driver.is_empty() { "not named" } else { &one.driver };
    let offloads = if one.offloads.is_empty() { "none".to_owned() } else { one.offloads.join(" ") };
    Finding::ok("driver", format!("driver {name}, MTU {}, offloads {offloads}", one.interface.mtu))
}

fn not_adopted() -> Finding {
    let text = "adopt: the interface has no Ethernet address, so 'artery adopt' does not forward there";
    Finding::broken("adopt", text, "name other ports; 'artery adopt --dry-run' lists them")
        .needed_by(&[Purpose::Adopt])
}

fn tunnel() -> Finding {
    let text = "adopt: a tunnel: what leaves and arrives by it is forwarded";
    Finding::ok("adopt", text).needed_by(&[Purpose::Adopt])
}

fn adopted(facts: &Facts, choice: &Choice) -> Finding {
    let why = choice.why(facts).map_or_else(String::new, |why| format!(": {why}"));
    let text = format!("adopt: {}{why}", choice.best().in_words());
    Finding::ok("adopt", text).needed_by(&[Purpose::Adopt])
}

/// What the driver does with XDP. Links without a device are no worse off without it.
fn xdp(facts: &Facts) -> Option<Finding> {
    let check = "xdp";
    let name = &facts.port.name;
    let finding = match facts.features {
        _ if facts.port.vlan_on.is_some() => return None,
        Some(features) if features.redirects && features.sends_redirected => Finding::ok(
            check,
            "XDP in the driver: it runs programs, redirects, and sends what is redirected to it",
        ),
        Some(_) if facts.is_unfinished() => Finding::ok(
            check,
            "XDP in the driver as far as the other end of the link has it; tc is as fast here",
        ),
        Some(features) => {
            let lacks = match features.redirects {
                true => "runs programs, but does not send what is redirected to it",
                false => "does not run programs that redirect",
            };
            Finding::slow(
                check,
                format!("XDP in the driver: it {lacks}"),
                "a card or a driver with XDP_REDIRECT; tc works with any",
            )
        }
        None => Finding::unknown(
            check,
            "the kernel does not tell what the driver does with XDP (Linux 6.3 does)",
            format!("artery adopt --path xdp {name} tries it"),
        ),
    };
    Some(finding.needed_by(Purpose::PROGRAMS))
}

fn tags(facts: &Facts) -> Option<Finding> {
    let check = "vlan-tags";
    let name = &facts.port.name;
    let finding = match facts.strips_tags {
        true => Finding::slow(
            check,
            "the card takes VLAN tags off (rxvlan), which XDP would not see, so XDP is not chosen",
            format!("ethtool -K {name} rxvlan off"),
        ),
        false => Finding::ok(check, "VLAN tags stay in frames, where XDP sees them"),
    };
    facts.port.vlan_on.is_none().then(|| finding.needed_by(&[Purpose::Adopt]))
}

/// The offload helps or harms by the traffic, so the finding is not a defect.
fn joining(facts: &Facts) -> Option<Finding> {
    let (offload, name) = (facts.joining?, &facts.port.name);
    let text =
        format!("{offload} joins frames of TCP before the kernel sees them: fast by tc, and lost by XDP");
    let remedy = format!("ethtool -K {name} {offload} off, where small packets matter more than TCP");
    let finding = Finding { remedy: Some(remedy), ..Finding::ok("joining-offload", text) };
    Some(finding.needed_by(&[Purpose::Adopt]))
}

fn queues(one: &InterfaceSurvey, facts: &Facts, choice: &Choice, processors: u32) -> Finding {
    let check = "queues";
    if choice.best().is_xdp()
        && let Some((lack, remedy)) = facts.lacks_queues_for_xdp(processors)
    {
        return Finding::slow(check, lack, remedy);
    }
    let count = u32::from(one.queues);
    let said = format!("{count} of {processors} CPUs can receive at once");
    let most = facts.channels.map_or(0, |channels| channels.most_combined);
    let wanted = processors.min(most);
    match facts.channels {
        _ if count >= processors => Finding::ok(check, format!("queues: {count}, for {processors} CPUs")),
        Some(channels) if channels.combined < wanted => Finding::slow(
            check,
            format!("queues: {said}"),
            format!("ethtool -L {} combined {wanted}", facts.port.name),
        ),
        _ if facts.driver == "virtio_net" => Finding::slow(
            check,
            format!("queues: {said}; the host gives no more"),
            format!("give the guest {processors} queue pairs (QEMU: queues={processors}, mq=on)"),
        ),
        _ => Finding::ok(check, format!("queues: {said}; the driver offers no more")),
    }
}

fn mtu(facts: &Facts, choice: &Choice) -> Finding {
    let check = "mtu";
    let (name, mtu) = (&facts.port.name, facts.mtu);
    let remedy = format!("ip link set dev {name} mtu {MOST_MTU_OF_A_BUFFER}, or --path tc");
    let text = |what: &str| format!("MTU {mtu}: {what}");
    let finding = match facts.multi_buffer() {
        MultiBuffer::Never => Finding::ok(check, text("each frame lies in one buffer")),
        _ if !choice.best().is_xdp() => {
            Finding::ok(check, text("frames lie in several buffers, which tc takes"))
        }
        MultiBuffer::Forwarded => Finding::ok(
            check,
            text(
                "frames lie in several buffers, which the driver gives to XDP, and sends where XDP redirects \
                 them",
            ),
        ),
        MultiBuffer::NotReceived => Finding::slow(
            check,
            text("frames lie in several buffers, which the driver does not give to XDP"),
            remedy,
        ),
        MultiBuffer::NotSent => Finding::slow(
            check,
            text(
                "frames lie in several buffers, which the driver does not send where XDP redirects them: \
                 those stay with the kernel",
            ),
            remedy,
        ),
        MultiBuffer::Unknown if facts.features.is_none() => Finding::unknown(
            check,
            text(
                "frames lie in several buffers; those that leave there by XDP stay with the kernel, which \
                 does not report whether the driver sends them (Linux 6.3 does)",
            ),
            remedy,
        ),
        MultiBuffer::Unknown => Finding::unknown(
            check,
            text(
                "frames lie in several buffers; only with a program at the port does the driver report \
                 whether it sends them",
            ),
            format!("artery adopt --path xdp {name} reports it"),
        ),
    };
    finding.needed_by(&[Purpose::Adopt])
}

/// How commands with an engine would receive; for interfaces shared with the host also why, and
/// what would change it.
fn used_by_engines(one: &InterfaceSurvey) -> [Finding; 3] {
    [
        Finding::ok("router", format!("router: {}", one.alone)).needed_by(&[Purpose::Router]),
        Finding::ok("run", format!("run: {}", one.shared)).needed_by(&[Purpose::Run]),
        Finding::ok("up", format!("up: {}", one.alone)).needed_by(&[Purpose::Up]),
    ]
}

fn zero_copy(one: &InterfaceSurvey) -> Option<Finding> {
    let check = "zero-copy";
    let finding = match one.zero_copy {
        _ if one.interface.link_type != Some(LinkType::ETHER) => return None,
        Some(true) => Finding::ok(check, "AF_XDP without copying, as far as the driver promises it"),
        Some(false) => {
            Finding::ok(check, "the driver has no AF_XDP without copying: packet sockets are used")
        }
        None => Finding::unknown(
            check,
            "the kernel does not tell whether the driver has AF_XDP without copying (Linux 6.3 does)",
            "METHOD XDP_NATIVE of FromDevice tries it",
        ),
    };
    Some(finding.needed_by(Purpose::ENGINES))
}
