use super::each::edit_each;
use artery_common::ip_header;
use artery_engine::{Batch, Class, Context, DropReason, Element, Packet};
use artery_wire::IpProtocol;

pub static CLASS: Class = Class {
    name: "EraseIPPayload",
    group: "ip",
    summary: "overwrites what TCP and UDP packets carry",
    manual: "
Expects IP packets. What follows the TCP or UDP header becomes zeros, and so does that header's checksum; the
packet keeps its length. Later fragments, which have no such header, become zeros behind the IP header. ICMP
packets pass unchanged. Packets of other protocols are dropped, and so are those without a whole IP header.",
    example: "Idle -> CheckIPHeader -> EraseIPPayload -> Discard;",
    finished: true,
    build: |_| Ok(Box::new(EraseIpPayload)),
    ..Class::PER_WORKER
};

struct EraseIpPayload;

/// Zeroes the bytes after a header of `length` bytes, and the header's checksum.
fn erase_segment(segment: &mut [u8], length: usize, checksum: usize) {
    if let Some(payload) = segment.get_mut(length..) {
        payload.fill(0);
    }
    if let Some(sum) = segment.get_mut(checksum..checksum + 2) {
        sum.fill(0);
    }
}

fn erase_payload(packet: &mut Packet) -> Result<(), DropReason> {
    let ip = ip_header::ip(packet)?;
    let (protocol, header_len, is_first) = (ip.protocol(), ip.header_len(), ip.fragment_offset() == 0);
    let segment = ip_header::bytes_mut(packet).get_mut(header_len..).unwrap_or(&mut []);
    match protocol {
        IpProtocol::TCP | IpProtocol::UDP if !is_first => segment.fill(0),
        IpProtocol::TCP => {
            // A header length below the minimum is taken for the minimum.
            let words = segment.get(12).map_or(5, |offset| usize::from(offset >> 4).max(5));
            erase_segment(segment, words * 4, 16);
        }
        IpProtocol::UDP => erase_segment(segment, 8, 6),
        IpProtocol::ICMP => {}
        _ => return Err(DropReason::NoMatch),
    }
    Ok(())
}

impl Element for EraseIpPayload {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        edit_each(batch, cx, erase_payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::{icmp_echo, ip4};

    #[test]
    fn headers_stay_and_what_they_carry_goes() {
        let mut bench = Bench::new(&CLASS, "");
        for (packet, header, checksum) in [
            (ip4().udp(1, 2).payload("secret").bytes(), 28, 26),
            (ip4().tcp(1, 2).payload("secret").bytes(), 40, 36),
            (ip4().tcp(1, 2).options([1, 1, 1, 0]).payload("secret").bytes(), 44, 40),
        ] {
            let mut expected = packet.clone();
            expected[header..].fill(0);
            expected[checksum..checksum + 2].fill(0);
            bench.push(0, packet);
            bench.expect(0, expected);
        }
    }

    #[test]
    fn later_fragments_carry_nothing_else() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, ip4().fragment(64, true).raw(17, [7; 24]).bytes());
        bench.expect(0, ip4().fragment(64, true).raw(17, [0; 24]).bytes());
    }

    #[test]
    fn icmp_passes_and_other_protocols_are_dropped() {
        let mut bench = Bench::new(&CLASS, "");
        let echo = icmp_echo("1.0.0.1", "1.0.0.2", 5, 6).payload("ping").bytes();
        bench.push(0, &echo);
        bench.expect(0, echo);
        bench.push(0, ip4().raw(200, [3; 24]).bytes());
        bench.expect_dropped(DropReason::NoMatch, 1);
    }

    #[test]
    fn any_bytes_are_survived() {
        let mut bench = Bench::new(&CLASS, "");
        let whole = ip4().tcp(1, 2).payload("secret").bytes();
        (0..whole.len()).for_each(|length| bench.push(0, &whole[..length]));
        let passed = bench.drain_sent(0).len() as u64;
        assert_eq!(passed + bench.drops().total(), whole.len() as u64);
    }
}
