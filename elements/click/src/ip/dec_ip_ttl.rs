use super::each::send_each;
use artery_common::ip_header;
use artery_engine::{Arg, Batch, Class, Context, DropReason, Element, Field, Handler, Packet, Show};
use artery_wire::Malformed;

pub static CLASS: Class = Class {
    name: "DecIPTTL",
    aliases: &["DecTTL"],
    group: "ip",
    summary: "decrements the IP time-to-live and turns expired packets aside",
    manual: "
Expects IPv4 packets, data starting at the IP header or the header marked by an earlier element. A packet
whose time-to-live is 1 or less leaves by output 1, unchanged, or is dropped when there is none. All others
leave by output 0 with their checksum updated incrementally (RFC 1624).",
    example: "Idle -> CheckIPHeader -> dt :: DecIPTTL -> Discard;\ndt[1] -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::keyword("ACTIVE", "bool", "true", "whether to do anything: else all packets pass unchanged"),
        Arg::keyword("MULTICAST", "bool", "true", "whether to decrement multicast packets too"),
    ],
    handlers: &[
        Handler::read("drops", "expired packets", &Show(|d: &mut DecIpTtl| d.expired)).sum(),
        Handler::field("active", "ACTIVE", &Field(|d: &mut DecIpTtl| &mut d.active)),
    ],
    build: |args| {
        Ok(Box::new(DecIpTtl {
            active: args.read("ACTIVE")?,
            multicast: args.read("MULTICAST")?,
            expired: 0,
        }))
    },
    ..Class::PER_WORKER
};

struct DecIpTtl {
    active: bool,
    multicast: bool,
    /// Packets that had their last hop.
    expired: u64,
}

/// Why a packet may not be forwarded.
pub(crate) enum HopError {
    /// It had its last hop.
    Expired,
    /// It has no complete header.
    NoHeader(Malformed),
}

/// Sends packets on that `decrement` finds a hop left for. Expired ones leave by output 1, and are counted.
#[inline]
pub(crate) fn send_hops(
    batch: &mut Batch,
    cx: &mut Context<'_>,
    expired: &mut u64,
    decrement: impl FnMut(&mut Packet) -> Result<(), HopError>,
) {
    send_each(batch, cx, decrement, |end, packet, cx| match end {
        HopError::Expired => {
            *expired += 1;
            cx.send_or_discard(1, packet, DropReason::TtlExpired);
        }
        HopError::NoHeader(why) => cx.discard(packet, why.into()),
    });
}

#[inline]
fn decrement_ttl(packet: &mut Packet, multicast: bool) -> Result<(), HopError> {
    let mut header = ip_header::ip_mut(packet).map_err(HopError::NoHeader)?;
    if !multicast && header.dst().is_multicast() {
        return Ok(());
    }
    if header.ttl() <= 1 {
        return Err(HopError::Expired);
    }
    header.decrement_ttl();
    Ok(())
}

impl Element for DecIpTtl {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        if !self.active {
            return cx.send_all(0, batch);
        }
        let multicast = self.multicast;
        send_hops(batch, cx, &mut self.expired, |packet| decrement_ttl(packet, multicast));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    #[test]
    fn a_live_packet_loses_one_hop() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, ip4().ttl(64).udp(1, 2).bytes());
        bench.expect(0, ip4().ttl(63).udp(1, 2).bytes());
    }

    #[test]
    fn an_expired_packet_leaves_by_output_1_unchanged() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, ip4().ttl(1).udp(1, 2).bytes());
        bench.expect(1, ip4().ttl(1).udp(1, 2).bytes());
    }

    #[test]
    fn without_output_1_an_expired_packet_is_dropped_and_counted() {
        let mut bench = Bench::setup(&CLASS, "").outputs(1).build().unwrap();
        bench.push(0, ip4().ttl(0).udp(1, 2).bytes());
        bench.expect_dropped(DropReason::TtlExpired, 1);
    }

    #[test]
    fn multicast_packets_pass_unchanged_when_told() {
        let mut bench = Bench::new(&CLASS, "MULTICAST false");
        bench.push(0, ip4().dst("224.0.0.5").ttl(1).udp(1, 2).bytes());
        bench.expect(0, ip4().dst("224.0.0.5").ttl(1).udp(1, 2).bytes());
    }

    #[test]
    fn expired_packets_are_counted_and_pass_while_it_is_inactive() {
        let mut bench = Bench::new(&CLASS, "ACTIVE false");
        let expired = ip4().ttl(1).udp(1, 2).bytes();
        bench.push(0, &expired);
        bench.expect(0, &expired);
        assert_eq!(bench.read("active", "").unwrap(), "false");
        assert_eq!(bench.read("drops", "").unwrap(), "0");
        bench.write("active", "yes").unwrap();
        bench.push(0, &expired);
        bench.expect(1, &expired);
        assert_eq!(bench.read("drops", "").unwrap(), "1");
    }

    #[test]
    fn any_bytes_are_survived() {
        crate::testing::survives_anything(&CLASS, "", 2);
    }
}
