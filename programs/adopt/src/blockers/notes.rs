//! Observers that keep no traffic in the kernel, but will see less of it.
use super::{Port, count_things};
use std::fs;

const TRACKED: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
const PACKET_SOCKETS: &str = "/proc/thread-self/net/packet";
/// The column of a packet socket's interface, 0 for all.
const INTERFACE: usize = 4;

/// A line for each. What can't be read is left out. By tc packet sockets see frames as before, since they
/// come before tc where frames arrive, and behind it where they leave.
pub fn notes(ports: &[Port], is_by_xdp: bool) -> Vec<String> {
    let tracked = fs::read_to_string(TRACKED).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let sockets = fs::read_to_string(PACKET_SOCKETS).unwrap_or_default();
    let of_sockets = of_sockets(&sockets, ports).filter(|_| is_by_xdp);
    of_connections(tracked).into_iter().chain(of_sockets).collect()
}

fn of_connections(tracked: u32) -> Option<String> {
    let connections = count_things(tracked, "connection");
    (tracked > 0)
        .then(|| format!("The kernel tracks {connections}; it does not see those of accelerated packets."))
}

fn of_sockets(table: &str, ports: &[Port]) -> Option<String> {
    let interface = |line: &str| line.split_whitespace().nth(INTERFACE)?.parse::<u32>().ok();
    let is_meant = |index: &u32| *index == 0 || ports.iter().any(|port| port.index == *index);
    match table.lines().skip(1).filter_map(interface).filter(is_meant).count() as u32 {
        0 => None,
        1 => Some("A packet socket listens, as of tcpdump; it does not see accelerated packets.".to_owned()),
        sockets => Some(format!(
            "{sockets} packet sockets listen, as of tcpdump; they do not see accelerated packets."
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_will_see_less_is_told() {
        let ports = [Port { index: 2, name: "eth0".into(), ..Port::default() }];
        let table =
            "sk RefCnt Type Proto Iface R Rmem User Inode\n0 3 3 0003 2 1 0 0 1\n0 3 3 0003 9 1 0 0 1\n";
        assert!(of_sockets(table, &ports).unwrap().starts_with("A packet socket listens"));
        assert!(
            of_sockets(&format!("{table}0 3 3 0003 0 1 0 0 1\n"), &ports).unwrap().starts_with("2 packet")
        );
        assert_eq!(of_sockets("", &ports), None);
        assert!(of_connections(1).unwrap().contains("1 connection;"));
        assert_eq!(of_connections(0), None);
    }
}
