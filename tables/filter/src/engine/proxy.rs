//! Handshakes in other hosts' place: `synproxy state`. The client must have answered the filter before the
//! server hears of it, so that a flood of SYNs ends here.
use super::Filter;
use super::answer::{ReplyDirection, SegmentBuilder};
use crate::dissect::{Dissected, FilterDropReason};
use crate::options::Timeout;
use crate::states::flag;
use crate::track::{Scale, Stage};
use artery_wire::TcpFlags;

const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
const CONTROL: u8 = TcpFlags::SYN.0 | TcpFlags::ACK.0 | TcpFlags::RST.0 | TcpFlags::FIN.0;

impl Filter {
    /// Goes on with a handshake. The packet never passes: a reason says so, None that the handshake is over.
    pub(super) fn shake_hands(
        &mut self,
        number: u32,
        seen: &Dissected,
        is_forward: bool,
    ) -> Option<FilterDropReason> {
        if self.states.hot[number as usize].peers[0].stage == Stage::PROXY_SOURCE
            && !self.accept_client(number, seen, is_forward)
        {
            return Some(FilterDropReason::Synproxy);
        }
        if self.states.hot[number as usize].peers[0].stage == Stage::PROXY_DESTINATION {
            if is_forward { self.call_server(number, seen) } else { self.accept_server(number, seen) }
        }
        Some(FilterDropReason::Synproxy)
    }

    /// Answers a client's SYN, and takes its acknowledgment; says whether that came.
    fn accept_client(&mut self, number: u32, seen: &Dissected, is_forward: bool) -> bool {
        let client = self.states.hot[number as usize].peers[0];
        if !is_forward {
            return false;
        }
        if seen.flags.contains(TcpFlags::SYN) {
            if seen.seq == client.low {
                self.send_syn_ack(number, seen, client.high);
            }
            return false;
        }
        if !is_answer(seen, client.low, client.high) || !self.record_connection(number) {
            return false;
        }
        self.states.hot[number as usize].peers[0].stage = Stage::PROXY_DESTINATION;
        self.states.hot[number as usize].seen = self.now_ms as u32;
        true
    }

    /// Answers a SYN in the server's place; the window is closed until the server is there.
    pub(super) fn send_syn_ack(&mut self, number: u32, seen: &Dissected, seq: u32) {
        let segment_size = self.states.extra(number).and_then(|extra| extra.segment_size);
        let made = SegmentBuilder::reply_to(seen, SYN_ACK, seq, seen.seq.wrapping_add(1));
        self.queue_reply(Some(SegmentBuilder { segment_size, ..made }.into_reply(ReplyDirection::Sender)));
    }

    /// Sends a SYN in the client's place; again for each segment that the client sends meanwhile.
    fn call_server(&mut self, number: u32, seen: &Dissected) {
        let [client, server] = self.states.hot[number as usize].peers;
        if !is_answer(seen, client.low, client.high) {
            return;
        }
        let high = if server.high == 1 { self.random.next_u32() } else { server.high };
        let peers = &mut self.states.hot[number as usize].peers;
        (peers[0].max_window, peers[1].high) = (seen.window.max(1), high);
        let segment_size = self.states.extra(number).and_then(|extra| extra.segment_size);
        let made =
            self.translate_segment(number, SegmentBuilder::forward_to(seen, TcpFlags::SYN, high, 0), true);
        let made = SegmentBuilder { segment_size, window: seen.window.max(1), ..made };
        self.queue_reply(Some(made.into_reply(ReplyDirection::Receiver)));
    }

    /// Takes the server's answer, and joins both ends: from now on numbers are moved.
    fn accept_server(&mut self, number: u32, seen: &Dissected) {
        let [mut client, mut server] = self.states.hot[number as usize].peers;
        let is_answer = seen.flags.0 & SYN_ACK.0 == SYN_ACK.0 && seen.ack == server.high.wrapping_add(1);
        if !is_answer {
            return;
        }
        (server.max_window, server.low) = (seen.window.max(1), seen.seq);
        let to_server = SegmentBuilder::reply_to(seen, TcpFlags::ACK, seen.ack, seen.seq.wrapping_add(1));
        self.queue_reply(Some(
            SegmentBuilder { window: client.max_window, ..to_server }.into_reply(ReplyDirection::Sender),
        ));
        let (seq, ack) = (client.high.wrapping_add(1), client.low.wrapping_add(1));
        let to_client =
            self.translate_segment(number, SegmentBuilder::forward_to(seen, TcpFlags::ACK, seq, ack), false);
        self.queue_reply(Some(
            SegmentBuilder { window: server.max_window, ..to_client }.into_reply(ReplyDirection::Receiver),
        ));
        let moved = [server.high.wrapping_sub(client.low), client.high.wrapping_sub(server.low)];
        client.high = client.low.wrapping_add(server.max_window.into());
        server.high = server.low.wrapping_add(client.max_window.into());
        for peer in [&mut client, &mut server] {
            (peer.scale, peer.stage) = (Scale::UNKNOWN, Stage::ESTABLISHED);
        }
        self.states.cold[number as usize].moved = moved;
        self.states.extra_mut(number).is_proxied = true;
        let hot = &mut self.states.hot[number as usize];
        (hot.peers, hot.seen) = ([client, server], self.now_ms as u32);
        hot.flags |= flag::MOVED;
        self.states.set_class(number, Timeout::TcpEstablished as u8);
    }

    /// A segment with the ends that it has on the other side of the filter, where the state translates.
    fn translate_segment(&self, number: u32, made: SegmentBuilder, is_forward: bool) -> SegmentBuilder {
        let hot = &self.states.hot[number as usize];
        let is_in = (hot.direction() == crate::facts::Direction::In) == is_forward;
        let (side, direction) =
            if is_in { (1, crate::facts::Direction::In) } else { (0, crate::facts::Direction::Out) };
        let (addresses, ports) = self.states.key(number, side).packet_ends(direction);
        SegmentBuilder { ends: crate::translate::FiveTuple { addresses, ports }, ..made }
    }
}

/// Whether a segment is the client's answer to the filter's SYN.
fn is_answer(seen: &Dissected, low: u32, high: u32) -> bool {
    seen.flags.0 & CONTROL == TcpFlags::ACK.0
        && seen.ack == high.wrapping_add(1)
        && seen.seq == low.wrapping_add(1)
}
