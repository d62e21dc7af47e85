use artery_common::arp_frame::{FRAME, arp_frame};
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, StartError};
use artery_wire::ArpOperation;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "ARPFaker",
    group: "ether",
    summary: "sends an ARP reply now and then",
    manual: "
Sends, one second after the start and then every ten seconds, an ARP reply to DSTIP at DSTETH which says that
SRCIP has Ethernet address SRCETH, with its Ethernet header. ARPResponder, which answers when asked, is
usually the better choice.",
    example: "ARPFaker(18.26.4.1, 0:e0:2b:b:1a:0, 18.26.4.99, 00:a0:c9:9c:fd:9c) -> Discard;",
    ports: "0/1",
    processing: "h/h",
    args: &[
        Arg::required("DSTIP", "IP address", "whom to tell"),
        Arg::required("DSTETH", "Ethernet address", "where that is"),
        Arg::required("SRCIP", "IP address", "the address to tell of"),
        Arg::required("SRCETH", "Ethernet address", "the Ethernet address it is said to have"),
    ],
    build: |args| Ok(Box::new(ArpFaker { frame: build_frame(args)? })),
    ..Class::DEFAULT
};

const FIRST: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(10);

struct ArpFaker {
    frame: [u8; FRAME],
}

fn build_frame(args: &Args<'_>) -> Result<[u8; FRAME], ArgError> {
    let target = (args.read("DSTETH")?, args.read("DSTIP")?);
    let sender = (args.read("SRCETH")?, args.read("SRCIP")?);
    Ok(arp_frame(target.0, ArpOperation::REPLY, sender, target))
}

impl Element for ArpFaker {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.discard_all(batch, DropReason::NoOutput);
    }
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let first = cx.now() + FIRST;
        cx.wake_at(first);
        Ok(())
    }
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let next = cx.now() + INTERVAL;
        cx.wake_at(next);
        match cx.pool().packet_from(&self.frame) {
            Some(mut packet) => {
                packet.set_mac_header(0);
                cx.send(0, packet);
            }
            None => cx.count_discarded(DropReason::PoolEmpty, 1),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::arp_reply;

    #[test]
    fn a_reply_leaves_after_a_second_and_then_every_ten() {
        let mut bench = Bench::new(&CLASS, "10.0.0.9, 2:0:0:0:0:9, 10.0.0.1, 2:0:0:0:0:1");
        bench.advance_time(Duration::from_millis(999));
        bench.expect_nothing_more();
        bench.advance_time(Duration::from_millis(20_100));
        let reply = arp_reply("2:0:0:0:0:1", "10.0.0.1", "2:0:0:0:0:9", "10.0.0.9").bytes();
        (0..3).for_each(|_| drop(bench.expect(0, &reply)));
        bench.expect_nothing_more();
    }
}
