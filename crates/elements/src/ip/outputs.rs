//! Sending each packet of a batch by an output of its own, and discarding those that have none.
use artery_engine::{Batch, Context, DropReason, Level, Packet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// No route leads there.
pub(crate) const NONE: u16 = u16::MAX;

/// How many packets without route are reported.
const REPORTS: u32 = 5;

/// Reports the first packets without route; one for the copies of an element on all workers.
#[derive(Clone, Default)]
pub(crate) struct Unrouted {
    class: &'static str,
    reported: Arc<AtomicU32>,
}

impl Unrouted {
    pub(crate) fn new(class: &'static str, reported: Arc<AtomicU32>) -> Unrouted {
        Unrouted { class, reported }
    }

    #[cold]
    fn discard(&self, packet: Packet, destination: IpAddr, cx: &mut Context<'_>) {
        if self.reported.load(Relaxed) < REPORTS && self.reported.fetch_add(1, Relaxed) < REPORTS {
            cx.say(&format!("{}: no route for {destination}", self.class));
        }
        cx.discard(packet, DropReason::NoRoute);
    }
}

/// Sends the packets of a batch by `outputs`, one for each; [`NONE`] ends a packet whose destination is then
/// asked for. Every lookup of a route ends here, and with it the way of packets of ports that are monitored so far.
pub(crate) fn send(
    batch: &mut Batch,
    outputs: &[u16],
    unrouted: &Unrouted,
    destination: impl Fn(&Packet) -> IpAddr,
    cx: &mut Context<'_>,
) {
    let first = outputs.first().copied().unwrap_or(NONE);
    if first != NONE && outputs.iter().all(|output| *output == first) {
        cx.exit(Level::L3, batch);
        return cx.send_all(first.into(), batch);
    }
    for (packet, output) in batch.drain().zip(outputs) {
        match *output {
            NONE => {
                let destination = destination(&packet);
                unrouted.discard(packet, destination, cx);
            }
            _ if cx.exits(Level::L3, &packet) => cx.discard(packet, DropReason::Monitored),
            output => cx.send(output.into(), packet),
        }
    }
}
