//! Announcements of the host's addresses at vports, for neighbors that know these addresses from an earlier
//! run: other switches learn the port, other hosts the Ethernet address.
use artery_common::frame_filter::FilterPort;
use artery_device::Interface;
use artery_wire::EtherAddr;
use artery_wire::build::arp_request;
use artery_wire::nd::{LinkEndpoint, unsolicited_advertisement};
use std::net::IpAddr;
use std::time::Duration;

/// How long after the start each announcement is made. RFC 5227 section 2.3 makes two, 2 seconds apart;
/// RFC 4861 section 7.2.6 up to three. The first for IPv6 waits for the end of the host's duplicate
/// address detection (RFC 4862).
const TIMES: [Duration; 3] = [Duration::ZERO, Duration::from_secs(2), Duration::from_secs(4)];
/// The first announcement of IPv6 addresses, as an index into [`TIMES`].
const FIRST_OF_IPV6: usize = 1;

/// Announcements still to be made.
pub(super) struct Announcements {
    vports: Vec<Vport>,
    /// When the switch started.
    begin: Duration,
    /// The next of [`TIMES`].
    next: usize,
}

/// The host's own interface to the switch.
struct Vport {
    port: u16,
    device: String,
    addresses: Vec<IpAddr>,
}

impl Announcements {
    /// Announcements for the ports for which `is_vport` holds.
    pub(super) fn new(
        ports: &[FilterPort],
        devices: &[String],
        is_vport: impl Fn(u16) -> bool,
        now: Duration,
    ) -> Announcements {
        let each = (0..).zip(ports.iter().zip(devices));
        let vports = each.filter(|(port, (record, _))| is_vport(*port) && !record.addresses.is_empty());
        let vport = |(port, (record, device)): (u16, (&FilterPort, &String))| Vport {
            port,
            device: device.clone(),
            addresses: record.addresses.iter().map(|(address, _)| *address).collect(),
        };
        Announcements { vports: vports.map(vport).collect(), begin: now, next: 0 }
    }

    /// When the next announcement is due.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let next = TIMES.get(self.next).filter(|_| !self.vports.is_empty())?;
        Some(self.begin + *next)
    }

    /// Frames that are due, as the host would send them by these ports. An
    /// absent interface announces nothing.
    pub(super) fn pop_due_frames(&mut self, now: Duration) -> Vec<(u16, Vec<u8>)> {
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return Vec::new();
        }
        let has_ipv6 = self.next >= FIRST_OF_IPV6;
        self.next += 1;
        let frames = |vport: &Vport| {
            let ether =
                Interface::find(&vport.device).ok().and_then(|interface| interface.mac).map(EtherAddr);
            let addresses = vport.addresses.iter().filter(|address| address.is_ipv4() || has_ipv6);
            let port = vport.port;
            let of_vport = ether
                .into_iter()
                .flat_map(|ether| addresses.clone().map(move |ip| (port, build_announcement(ether, *ip))));
            of_vport.collect::<Vec<_>>()
        };
        self.vports.iter().flat_map(frames).collect()
    }
}

/// An ARP announcement, or an unsolicited advertisement that overrides neighbor cache entries.
fn build_announcement(ether: EtherAddr, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(ip) => arp_request(ether, ip, ip).bytes(),
        IpAddr::V6(ip) => unsolicited_advertisement(LinkEndpoint { ether, ip }, false, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_common::frame_filter::parse_port_address;

    fn port(name: &str, addresses: &[&str]) -> FilterPort {
        let addresses = addresses.iter().map(|word| parse_port_address(word).unwrap()).collect();
        FilterPort { name: name.to_string(), addresses }
    }

    #[test]
    fn addresses_of_vports_are_announced_thrice_and_those_of_ipv6_a_little_later() {
        let ports = [port("em0", &["10.0.0.1/24"]), port("vport0", &["10.0.0.9/24", "2001:db8::9/64"])];
        // The loopback has an address of zeros.
        let devices = ["lo", "lo"].map(String::from);
        let start = Duration::from_secs(100);
        let mut announcements = Announcements::new(&ports, &devices, |port| port == 1, start);
        let mut counts = Vec::new();
        for seconds in [99, 100, 101, 102, 104, 200] {
            let frames = announcements.pop_due_frames(Duration::from_secs(seconds));
            assert!(frames.iter().all(|(port, _)| *port == 1));
            counts.push(frames.len());
        }
        assert_eq!(counts, [0, 1, 0, 2, 2, 0]);
        assert_eq!(announcements.next_deadline(), None);
    }
}
