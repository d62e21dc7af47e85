//! Sending each packet of a batch by an output of its own, and discarding those that have none.
use artery_engine::{Batch, Context, DropReason, Level, Packet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The output of a packet without a route.
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
    fn discard_unrouted(&self, packet: Packet, destination: IpAddr, cx: &mut Context<'_>) {
        if self.reported.load(Relaxed) < REPORTS && self.reported.fetch_add(1, Relaxed) < REPORTS {
            cx.print_message(&format!("{}: no route for {destination}", self.class));
        }
        cx.discard(packet, DropReason::NoRoute);
    }
}

/// Sends the packets of a batch by `outputs`, one for each; a packet with [`NONE`] is discarded, with its
/// destination reported. Every route lookup ends here, and with it the packets of ports that are monitored
/// up to this level.
pub(crate) fn send_by_outputs(
    batch: &mut Batch,
    outputs: &[u16],
    unrouted: &Unrouted,
    destination: impl Fn(&Packet) -> IpAddr,
    cx: &mut Context<'_>,
) {
    let first = outputs.first().copied().unwrap_or(NONE);
    if first != NONE && outputs.iter().all(|output| *output == first) {
        cx.drop_monitored(Level::L3, batch);
        return cx.send_all(first.into(), batch);
    }
    for (packet, output) in batch.drain().zip(outputs) {
        match *output {
            NONE => {
                let destination = destination(&packet);
                unrouted.discard_unrouted(packet, destination, cx);
            }
            _ if cx.is_monitored_at(Level::L3, &packet) => cx.discard(packet, DropReason::Monitored),
            output => cx.send(output.into(), packet),
        }
    }
}
