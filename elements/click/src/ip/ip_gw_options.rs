use super::address::List;
use artery_common::gateway_options::{OptionError, OptionProcessor};
use artery_common::ip_header;
use artery_engine::{
    Arg, ArgError, Args, Class, Context, DropReason, Handler, Packet, Show, Simple, Time, anno,
};
use artery_wire::{Ipv4, Malformed};
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "IPGWOptions",
    group: "ip",
    summary: "does what IP options ask of every router",
    manual: "
Expects IP packets, on their way out by the interface that has the address `MYADDR` (RFC 1812 section
4.2.2.2). Records that address in a Record Route option, and address, time or both in a Timestamp option, as
far as there is room; `OTHERADDRS` are the router's other addresses, which a Timestamp option may ask for by
name. The header checksum is computed again when the header changed. Other options, source routes among them,
are left alone.

A packet with an option that makes no sense leaves by output 1, or is dropped when there is none, as it came,
with the place of the mistake in its parameter-problem annotation: ICMPError(..., parameterproblem) reports
it.",
    example: "Idle -> CheckIPHeader -> gw :: IPGWOptions(18.26.4.24) -> Discard;
gw[1] -> ICMPError(18.26.4.24, parameterproblem) -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::required("MYADDR", "IP address", "the address of the interface that packets leave by"),
        Arg::optional("OTHERADDRS", "IP addresses", "", "the router's other addresses"),
    ],
    handlers: &[
        Handler::read("drops", "packets with bad options", &Show(|o: &mut IpGwOptions| o.drops)).sum()
    ],
    build: |args| Ok(Box::new(IpGwOptions::new(args)?)),
    ..Class::PER_WORKER
};

const MIN_HEADER: usize = 20;
const MAX_HEADER: usize = 60;

struct IpGwOptions {
    address: Ipv4Addr,
    /// All of the router's addresses.
    addresses: Vec<Ipv4Addr>,
    drops: u64,
}

impl IpGwOptions {
    fn new(args: &Args<'_>) -> Result<IpGwOptions, ArgError> {
        let address = args.read("MYADDR")?;
        let List(mut addresses) = args.read("OTHERADDRS")?;
        addresses.push(address);
        Ok(IpGwOptions { address, addresses, drops: 0 })
    }
}

/// Why a packet may not go on.
pub(super) enum OptionsError {
    /// It has no header that could have options.
    NoHeader(Malformed),
    /// An option is invalid, at this offset of the header.
    Option(OptionError),
}

/// Processes a packet's options as a router; a packet with an invalid option is unchanged.
#[inline]
pub(super) fn process_options(
    packet: &mut Packet,
    address: Ipv4Addr,
    addresses: &[Ipv4Addr],
    now: Time,
) -> Result<(), OptionsError> {
    let ip = ip_header::ip(packet).map_err(OptionsError::NoHeader)?;
    let header_len = ip.header_len();
    if header_len == MIN_HEADER {
        return Ok(());
    }
    // A copy, so that a packet with an invalid option is unchanged.
    let mut copy = [0; MAX_HEADER];
    let copy = &mut copy[..header_len];
    copy.copy_from_slice(ip.header());
    let is_own = |address| addresses.contains(&address);
    if (OptionProcessor { address, is_own: &is_own, now })
        .process_options(copy)
        .map_err(OptionsError::Option)?
    {
        Ipv4::new(&mut *copy).expect("options are not part of what makes a header one").fill_checksum();
        ip_header::bytes_mut(packet)[..header_len].copy_from_slice(copy);
    }
    Ok(())
}

/// Sends a packet by `output` with the offset of the error, for an ICMPError behind it.
pub(super) fn send_mistaken(
    output: usize,
    mut packet: Packet,
    OptionError(at): OptionError,
    cx: &mut Context<'_>,
) {
    packet.set_annotation(anno::ICMP_PARAM_PROB, [at as u8]);
    cx.send_or_discard(output, packet, DropReason::Malformed);
}

impl Simple for IpGwOptions {
    fn process(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        match process_options(&mut packet, self.address, &self.addresses, cx.now()) {
            Ok(()) => return Some(packet),
            Err(OptionsError::NoHeader(malformed)) => cx.discard(packet, malformed.into()),
            Err(OptionsError::Option(mistake)) => {
                self.drops += 1;
                send_mistaken(1, packet, mistake, cx);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    const CONFIG: &str = "1.2.3.4, 5.6.7.8 9.9.9.9";
    /// 1,000,000,000 s after the epoch, when the bench starts, it was 01:46:40.
    const NOW: [u8; 4] = 6_400_000_u32.to_be_bytes();

    fn packet(options: &[u8]) -> Vec<u8> {
        ip4().options(options).udp(1, 2).bytes()
    }

    #[track_caller]
    fn expect(before: &[u8], after: &[u8]) {
        let mut bench = Bench::new(&CLASS, CONFIG);
        bench.push(0, packet(before));
        bench.expect(0, packet(after));
    }

    #[track_caller]
    fn expect_mistake(options: &[u8], at: u8) {
        let mut bench = Bench::new(&CLASS, CONFIG);
        bench.push(0, packet(options));
        let bad = bench.expect(1, packet(options));
        assert_eq!(bad.annotation(anno::ICMP_PARAM_PROB), [at]);
        assert_eq!(bench.read("drops", "").unwrap(), "1");
    }

    #[test]
    fn a_route_is_recorded_while_there_is_room() {
        expect(&[1, 7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 7, 11, 8, 1, 2, 3, 4, 0, 0, 0, 0]);
        expect(&[7, 7, 8, 9, 9, 9, 9, 0], &[7, 7, 8, 9, 9, 9, 9, 0]);
    }

    #[test]
    fn times_are_stamped_alone_or_with_addresses() {
        let [a, b, c, d] = NOW;
        expect(&[68, 8, 5, 0, 0, 0, 0, 0], &[68, 8, 9, 0, a, b, c, d]);
        expect(&[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0], &[68, 12, 13, 1, 1, 2, 3, 4, a, b, c, d]);
        expect(&[68, 12, 5, 3, 5, 6, 7, 8, 0, 0, 0, 0], &[68, 12, 13, 3, 5, 6, 7, 8, a, b, c, d]);
        expect(&[68, 12, 5, 3, 5, 6, 7, 7, 0, 0, 0, 0], &[68, 12, 5, 3, 5, 6, 7, 7, 0, 0, 0, 0]);
        expect(&[68, 8, 9, 0x20, 1, 1, 1, 1], &[68, 8, 9, 0x30, 1, 1, 1, 1]);
    }

    #[test]
    fn other_options_are_left_alone_and_the_end_is_the_end() {
        for options in [&[131, 7, 4, 1, 1, 1, 1, 0][..], &[0, 7, 1, 0], &[1, 1, 1, 1]] {
            expect(options, options);
        }
    }

    #[test]
    fn mistakes_are_pointed_at_and_the_packet_stays_as_it_came() {
        expect_mistake(&[7, 7, 3, 0, 0, 0, 0, 0], 22);
        expect_mistake(&[7, 7, 7, 0, 0, 0, 0, 0], 22);
        expect_mistake(&[7, 9, 4, 0, 0, 0, 0, 0], 21);
        expect_mistake(&[131, 1, 0, 0], 21);
        expect_mistake(&[1, 1, 1, 7], 24);
        expect_mistake(&[7, 2, 0, 0], 21);
        expect_mistake(&[68, 8, 4, 0, 0, 0, 0, 0], 22);
        expect_mistake(&[68, 8, 9, 0xf0, 0, 0, 0, 0], 23);
        expect_mistake(&[68, 8, 5, 2, 0, 0, 0, 0], 23);
        expect_mistake(&[7, 7, 4, 0, 0, 0, 0, 68, 3, 5, 0, 0], 28);
    }

    #[test]
    fn packets_without_options_pass_and_any_bytes_are_survived() {
        let mut bench = Bench::new(&CLASS, CONFIG);
        bench.push(0, ip4().udp(1, 2).bytes());
        bench.expect(0, ip4().udp(1, 2).bytes());
        survives_anything(&CLASS, CONFIG, 2);
        assert_eq!(Bench::config_error(&CLASS, ""), "MYADDR: required argument missing");
    }
}
