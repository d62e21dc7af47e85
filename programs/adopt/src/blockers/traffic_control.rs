//! What tc has set up at ports: filters in both directions, and queueing that is more than a queue.
use super::{Blocker, BlockerKind, Direction, OwnHook, Port};
use artery_device::bpf::{self, AttachedPrograms, TcxSide};
use artery_netlink::request::{self as netlink, Attributes, Message, u32_at};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;

const NEW_QDISC: u16 = 36;
const GET_QDISC: u16 = 38;
const NEW_FILTER: u16 = 44;
const GET_FILTER: u16 = 46;
/// Bytes of `struct tcmsg`.
const FIXED: usize = 20;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// The name of a filter of kind `bpf` (`TCA_BPF_NAME`).
const BPF_NAME: u16 = 7;
/// Parents of the filters of a port: as packets arrive, and as they leave.
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;

/// Queueing disciplines that send packets in order, or fairly: the user chose no other treatment.
const PLAIN: [&str; 8] = ["noqueue", "noop", "pfifo", "bfifo", "pfifo_fast", "fq_codel", "fq", "mq"];
/// Disciplines that queue nothing and are there for filters.
const FOR_FILTERS: [&str; 2] = ["clsact", "ingress"];

/// What keeps traffic of these ports.
pub(super) fn guards(ports: &[Port]) -> io::Result<Vec<Blocker>> {
    let disciplines = of_kind(netlink::dump(NETLINK_ROUTE, GET_QDISC, &[0; FIXED])?, NEW_QDISC)?;
    let mut guards = Vec::new();
    for port in ports {
        let of_port = || disciplines.iter().filter(|one| one.interface == port.index);
        guards.extend(of_port().find(|one| one.is_shaping()).map(|one| of_discipline(port, one)));
        if of_port().any(|one| FOR_FILTERS.contains(&one.kind.as_str())) {
            guards.extend(filter(port, INGRESS)?.map(|filter| of_filter(port, &filter, Direction::In)));
            guards.extend(filter(port, EGRESS)?.map(|filter| of_filter(port, &filter, Direction::Out)));
        }
    }
    Ok(guards)
}

/// Programs at the hooks of tc's filters (TCX), since Linux 6.6; only bpf(2) lists them.
pub(super) fn programs(ports: &[Port]) -> Vec<Blocker> {
    let sides = [(TcxSide::Ingress, Direction::In), (TcxSide::Egress, Direction::Out)];
    let all = ports.iter().flat_map(|port| sides.map(|side| (port, side)));
    let ask = |(port, (side, direction)): (&Port, (TcxSide, Direction))| {
        of_programs(port, bpf::tcx_programs(port.index, side), direction)
    };
    all.filter_map(ask).collect()
}

fn of_programs(port: &Port, found: io::Result<AttachedPrograms>, direction: Direction) -> Option<Blocker> {
    let side = if direction == Direction::In { "ingress" } else { "egress" };
    let own = u32::from(port.own == Some(OwnHook::Tc) && direction == Direction::In);
    let others = found.map(|found| (found.count.saturating_sub(own), found.of_artery.saturating_sub(own)));
    let guard = match others {
        Ok((0, _)) => return None,
        Ok((number, of_artery)) => {
            let programs = super::count_things(number, "BPF program");
            let (all, some) = match of_artery {
                0 => ("", String::new()),
                of_artery if of_artery == number => (" of Artery", String::new()),
                of_artery => ("", format!(", of which {of_artery} of Artery")),
            };
            let what = format!("{}: {programs}{all} at TCX {side}{some}", port.name);
            Blocker::new(BlockerKind::Program, what, format!("shown by: bpftool net show dev {}", port.name))
        }
        Err(error) => {
            let what = format!("{}: whether there are BPF programs at TCX {side}", port.name);
            Blocker::unreadable(&what, &error)
        }
    };
    Some(guard.at_port(port.index, direction))
}

/// A queueing discipline, or a filter.
struct TcObject {
    interface: u32,
    kind: String,
    /// Of a filter: its handle, which is 0 where the kernel lists a priority; and its priority,
    /// in the upper half.
    handle: u32,
    info: u32,
    /// The name of a program that is a filter.
    name: Option<String>,
}

impl TcObject {
    fn read(body: &[u8]) -> io::Result<TcObject> {
        let attributes = Attributes::after_header(FIXED, body)?;
        let kind = attributes.text(KIND).unwrap_or_default();
        let name = match kind.as_str() {
            "bpf" => attributes.nested(OPTIONS)?.and_then(|options| options.text(BPF_NAME)),
            _ => None,
        };
        let (interface, handle, info) = (u32_at(body, 4)?, u32_at(body, 8)?, u32_at(body, 16)?);
        Ok(TcObject { interface, kind, handle, info, name })
    }
    /// Whether it is this process's own filter, where the kernel has no other hook for programs of tc.
    fn is_own(&self) -> bool {
        let own = format!("{}{}-", bpf::FILTER_NAME, std::process::id());
        self.name.as_ref().is_some_and(|name| name.starts_with(&own))
    }
    fn is_shaping(&self) -> bool {
        !PLAIN.contains(&self.kind.as_str()) && !FOR_FILTERS.contains(&self.kind.as_str())
    }
}

fn of_kind(messages: Vec<Message>, kind: u16) -> io::Result<Vec<TcObject>> {
    messages
        .iter()
        .filter(|message| message.kind == kind)
        .map(|message| TcObject::read(&message.body))
        .collect()
}

/// The first filter of a port at a parent that is not this process's own.
fn filter(port: &Port, parent: u32) -> io::Result<Option<TcObject>> {
    let mut question = [0; FIXED];
    question[4..8].copy_from_slice(&port.index.to_ne_bytes());
    question[12..16].copy_from_slice(&parent.to_ne_bytes());
    let filters = of_kind(netlink::dump(NETLINK_ROUTE, GET_FILTER, &question)?, NEW_FILTER)?;
    Ok(filters
        .into_iter()
        .find(|filter| filter.handle != 0 && !(port.own == Some(OwnHook::Tc) && filter.is_own())))
}

fn of_discipline(port: &Port, discipline: &TcObject) -> Blocker {
    let what = format!("tc: qdisc {} shapes or orders what leaves by {}", discipline.kind, port.name);
    let remedy = format!("shown by: tc qdisc show dev {}", port.name);
    Blocker::new(BlockerKind::Queueing, what, remedy).at_port(port.index, Direction::Out)
}

fn of_filter(port: &Port, filter: &TcObject, direction: Direction) -> Blocker {
    let side = if direction == Direction::In { "ingress" } else { "egress" };
    let of_artery = filter.name.as_ref().is_some_and(|name| name.starts_with(bpf::FILTER_NAME));
    let whose = if of_artery { " of Artery" } else { "" };
    let (kind, name, priority) = (&filter.kind, &port.name, filter.info >> 16);
    let what = format!("tc: {kind} filter{whose} at {side} of {name} (pref {priority})");
    let remedy = format!("shown by: tc filter show dev {} {side}", port.name);
    Blocker::new(BlockerKind::Filter, what, remedy).at_port(port.index, direction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_netlink::request::written::{name, nested, survive};

    fn object(interface: u32, kind: &str, info: u32) -> Vec<u8> {
        let mut body = vec![0; FIXED];
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        body[8..12].copy_from_slice(&1_u32.to_ne_bytes());
        body[16..20].copy_from_slice(&info.to_ne_bytes());
        body.extend(name(KIND, kind));
        body
    }

    #[test]
    fn a_filter_of_this_process_is_told_from_those_of_others() {
        let is_own = |called: &str| {
            let mut body = object(2, "bpf", 1 << 16);
            body.extend(nested(OPTIONS, &[name(BPF_NAME, called)]));
            TcObject::read(&body).unwrap().is_own()
        };
        assert!(is_own(&format!("artery-{}-2-1-clsact", std::process::id())));
        assert!(!is_own("artery-1-2-1") && !is_own("cil_from_netdev"));
        assert!(!TcObject::read(&object(2, "u32", 1)).unwrap().is_own());
    }

    #[test]
    fn disciplines_that_shape_are_told_from_those_that_only_queue() {
        let shapes = |kind| TcObject::read(&object(2, kind, 0)).unwrap().is_shaping();
        assert!(["tbf", "htb", "netem", "cake", "prio", "of the future"].into_iter().all(shapes));
        assert!(!["noqueue", "fq_codel", "mq", "clsact", "ingress"].into_iter().any(shapes));
    }

    #[test]
    fn a_guard_names_port_side_and_kind() {
        let port = Port { index: 2, name: "eth0".into(), ..Port::default() };
        let filter = TcObject::read(&object(2, "u32", 49152 << 16)).unwrap();
        let guard = of_filter(&port, &filter, Direction::In);
        assert_eq!(guard.what, "tc: u32 filter at ingress of eth0 (pref 49152)");
        assert_eq!(guard.remedy, "shown by: tc filter show dev eth0 ingress");
        let some = |count, of_artery| Ok(AttachedPrograms { count, of_artery });
        let guard = of_programs(&port, some(2, 0), Direction::Out).unwrap();
        assert_eq!(guard.what.as_str(), "eth0: 2 BPF programs at TCX egress");
        assert_eq!(guard.direction, Direction::Out);
        let what = |found| of_programs(&port, found, Direction::In).map(|guard| guard.what);
        assert_eq!(what(some(1, 1)).unwrap(), "eth0: 1 BPF program of Artery at TCX ingress");
        assert_eq!(what(some(3, 1)).unwrap(), "eth0: 3 BPF programs at TCX ingress, of which 1 of Artery");
        assert_eq!(what(some(0, 0)), None);
        let own = Port { own: Some(OwnHook::Tc), ..port.clone() };
        assert!(of_programs(&own, some(1, 1), Direction::In).is_none());
        assert!(of_programs(&own, some(1, 0), Direction::Out).is_some());
        assert!(of_programs(&own, some(2, 1), Direction::In).is_some());
        let at_xdp = Port { own: Some(OwnHook::Xdp), ..port.clone() };
        assert!(of_programs(&at_xdp, some(1, 0), Direction::In).is_some());
        let unknown = of_programs(&port, Err(io::ErrorKind::PermissionDenied.into()), Direction::In);
        assert_eq!(unknown.unwrap().kind, BlockerKind::Unreadable);
        survive(&object(2, "u32", 1), |body| TcObject::read(body).is_ok());
    }
}
