//! Any bytes as a packet that an error is about, behind any headers and options: the error has right lengths
//! and checksums and quotes the packet; fragments fit their MTU and make the packet again.
#![no_main]
use artery_wire::{
    Icmp, Icmp6, Icmp6Error, Icmp6Type, IcmpError, IcmpType, Ip6Headers, Ipv4, Ipv4Assembly, Ipv4Fragments,
    Ipv4Options, Ipv6,
};
use libfuzzer_sys::fuzz_target;
use std::net::{Ipv4Addr, Ipv6Addr};

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, code, number, flags], packet)) = data.split_first_chunk() else { return };
    about_v4(
        IcmpError { icmp_type: IcmpType(kind), code, rest: [number, 0, 0, flags] },
        packet,
        flags & 1 != 0,
    );
    about_v6(Icmp6Error { icmp_type: Icmp6Type(kind), code, rest: number.into() }, packet, flags & 1 != 0);
    headers(packet);
    fragments(packet, number.into());
});

fn about_v4(error: IcmpError, packet: &[u8], is_group_frame: bool) {
    let Ok(answer) = error.answer_to(packet, is_group_frame, |_| false) else { return };
    let made = answer.build_packet(packet, Ipv4Addr::LOCALHOST, 1);
    let ip = Ipv4::new(&made).expect("an error is an IPv4 packet");
    assert!(ip.checksum_is_valid() && ip.check_total_length().is_ok() && made.len() <= 576);
    assert!(Icmp::new(ip.payload()).is_ok_and(|icmp| icmp.checksum_is_valid()));
    assert!(Ipv4Options::new(ip.options()).all(|option| option.is_ok()));
    assert!(packet.starts_with(&made[answer.headers_len()..]));
}

fn about_v6(error: Icmp6Error, packet: &[u8], is_group_frame: bool) {
    let Ok(answer) = error.answer_to(packet, is_group_frame) else { return };
    let made = answer.build_packet(packet, Ipv6Addr::LOCALHOST);
    let ip = Ipv6::new(&made).expect("an error is an IPv6 packet");
    assert!(ip.check_payload_length().is_ok() && made.len() <= 1280);
    assert!(Icmp6::new(ip.payload()).is_ok_and(|icmp| icmp.checksum_is_valid(ip.src(), ip.dst())));
    assert!(packet.starts_with(&made[48..]));
}

fn headers(packet: &[u8]) {
    let Ok(headers) = Ip6Headers::parse_packet(packet) else { return };
    assert!((40..=packet.len()).contains(&headers.offset));
    assert_eq!(packet[headers.named_at], headers.protocol.0);
    if let Some(options) = headers.hop_by_hop {
        let _ = options.check_options(false);
        assert!(options.flatten().all(|option| packet[option.at] == option.kind));
    }
}

fn fragments(packet: &[u8], mtu: usize) {
    let mut assembly = Ipv4Assembly::default();
    let Ok(fragments) = Ipv4Fragments::split_packet(packet, mtu) else { return };
    let ip = Ipv4::new(packet).expect("it was split");
    let mut whole = None;
    for fragment in fragments {
        assert!(whole.is_none() && fragment.to_bytes().len() <= mtu);
        whole = assembly.add_fragment(&fragment.to_bytes()).unwrap_or_default();
    }
    match whole {
        Some(whole) => assert_eq!(Ipv4::new(&whole).expect("it was made one").payload(), ip.payload()),
        None => assert!(ip.is_fragment()),
    }
}
