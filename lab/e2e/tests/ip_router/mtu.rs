//! Links of different MTU: hosts learn what passes, and what may be cut is cut.

use super::support::{Net, answered, with_net};
use artery_rig::{Frame, Host, Result, Traffic};
use artery_wire::{EtherType, Ethernet, Ipv4};

/// What a host knows of the way to an address.
fn way(host: &Host, address: &str) -> Result<String> {
    Ok(host.run(["ip", "route", "get", address])?.stdout)
}

/// Fragments among frames, as the number of those that are the last ones.
fn last_fragments(frames: &[Frame]) -> usize {
    let is_last = |frame: &&Frame| {
        let is_v4 = Ethernet::new(&frame.bytes[..]).unwrap().ether_type() == EtherType::IPV4;
        let ip = is_v4.then(|| Ipv4::new(&frame.bytes[14..]).unwrap());
        ip.is_some_and(|ip| ip.fragment_offset() > 0 && !ip.more_fragments())
    };
    frames.iter().filter(is_last).count()
}

/// Makes the far link a narrow one, where the host at its end does not know of it if `host_knows` is false.
fn narrow(net: &Net, mtu: u32, host_knows: bool) -> Result<()> {
    net.r.mtu("eth2", mtu)?;
    if host_knows {
        net.b().mtu("eth0", mtu)?;
    }
    Ok(())
}

#[test]
fn tcp_finds_the_mtu_of_the_way_and_goes_through() {
    with_net("mtu-tcp", 2, |net| {
        // The server offers segments of 1500 bytes, so that only ICMP errors report the smaller
        // MTU to the sender.
        narrow(net, 1400, false)?;
        let router = net.start(&[])?;
        for address in ["10.0.2.2", "fd00:2::2"] {
            let tcp = net.a().iperf3(net.b(), address, &["-n", "3M"])?;
            assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
            let way = way(net.a(), address)?;
            assert!(way.contains("mtu 1400"), "{way}");
        }
        assert!(router.drops("mtu-exceeded")? >= 2);
        let longest = router.sent_to(1).iter().map(|frame| frame.length).max();
        assert_eq!(longest, Some(1414));
        router.end()
    });
}

#[test]
fn an_mtu_that_becomes_smaller_is_heeded_at_once() {
    with_net("mtu-change", 2, |net| {
        let router = net.start(&[])?;
        let full = |address: &str, size: &str| net.a().ping_with(address, 2, &["-M", "do", "-s", size]);
        assert_eq!((full("10.0.2.2", "1472")?.received, full("fd00:2::2", "1452")?.received), (2, 2));
        narrow(net, 1300, true)?;
        router.until(|router| Ok(router.port("eth2")?["mtu"] == 1300))?;
        let report = full("10.0.2.2", "1472")?;
        let text = &report.text;
        assert!(report.received == 0 && text.contains("mtu = 1300") || text.contains("mtu=1300"), "{text}");
        assert_eq!(full("fd00:2::2", "1452")?.received, 0);
        assert!(way(net.a(), "fd00:2::2")?.contains("mtu 1300"));
        assert_eq!((full("10.0.2.2", "1272")?.received, full("fd00:2::2", "1252")?.received), (2, 2));
        router.end()
    });
}

#[test]
fn what_may_be_cut_is_cut_and_arrives() {
    with_net("mtu-cut", 2, |net| {
        narrow(net, 1300, true)?;
        let router = net.start(&[])?;
        answered(net.a(), "10.0.2.2", 1)?;
        let report = net.a().ping_with("10.0.2.2", 5, &["-M", "dont", "-s", "1472"])?;
        assert_eq!(report.received, 5, "{}", report.text);
        assert_eq!(last_fragments(&router.sent_to(1)), 5);
        assert_eq!(router.count("fragments-made")?, 10);
        // Datagrams without the flag.
        net.a().sysctl("net.ipv4.ip_no_pmtu_disc", "1")?;
        let report =
            Traffic::between(net.a(), net.b(), "10.0.2.2").frame_bytes(1514).frames(500).rate(1000).run()?;
        assert_eq!((report.received, report.duplicated), (500, 0), "{report}");
        // Of IPv6, the sender cuts.
        let report = net.a().ping_with("fd00:2::2", 5, &["-s", "1452"])?;
        assert!(report.received >= 4, "{}", report.text);
        router.end()
    });
}

#[test]
fn the_mtu_of_a_route_counts_where_it_is_smaller_than_that_of_its_port() {
    with_net("mtu-route", 2, |net| {
        let router = net.start(&[])?;
        net.b().address("lo", "10.9.0.1/32")?;
        router.handler(&["ip.add_route", "10.9.0.0/16 10.0.2.2 mtu 1200"])?;
        assert_eq!(net.a().ping_with("10.9.0.1", 2, &["-M", "do", "-s", "1172"])?.received, 2);
        let report = net.a().ping_with("10.9.0.1", 2, &["-M", "do", "-s", "1173"])?;
        assert_eq!(report.received, 0, "{}", report.text);
        assert!(way(net.a(), "10.9.0.1")?.contains("mtu 1200"));
        assert_eq!(net.a().ping_with("10.0.2.2", 2, &["-M", "do", "-s", "1472"])?.received, 2);
        router.end()
    });
}
