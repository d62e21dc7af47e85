//! Tracking against a straight reading of its rules, in numbers that don't wrap.
use super::*;
use proptest::prelude::*;

const W: i64 = 65_535 + 1500;

/// An end, in numbers as they are counted.
#[derive(Clone, Debug)]
struct End {
    low: Option<i64>,
    high: i64,
    window: i64,
    scale: Option<u32>,
    stage: u8,
}

/// A segment in such numbers; the acknowledgment is there if the flag is.
#[derive(Clone, Debug)]
struct Sent {
    flags: u8,
    seq: i64,
    ack: i64,
    window: i64,
    payload: i64,
    scale: Option<u8>,
}

impl Sent {
    fn segment(&self) -> Segment {
        Segment {
            flags: TcpFlags(self.flags),
            seq: self.seq as u32,
            ack: self.ack as u32,
            window: self.window as u16,
            payload: self.payload as u32,
            scale: self.scale,
        }
    }

    fn has(&self, flag: TcpFlags) -> bool {
        self.flags & flag.0 != 0
    }

    fn end(&self) -> i64 {
        let extra = i64::from(self.has(TcpFlags::SYN)) + i64::from(self.has(TcpFlags::FIN));
        self.seq + self.payload + extra
    }
}

/// What the rules say, read line by line. Both ends have sent.
fn step(from: &mut End, to: &mut End, sent: &Sent) -> Tracked {
    let (low, other_low) = (from.low.unwrap(), to.low.unwrap());
    let is_scaled = from.scale.is_some() && to.scale.is_some() && !sent.has(TcpFlags::SYN);
    let shift_of = |end: &End| if is_scaled { end.scale.unwrap() } else { 0 };
    let (shift, other_shift) = (shift_of(from), shift_of(to));
    let ack = if sent.has(TcpFlags::ACK) { sent.ack } else { other_low };
    let is_empty = sent.seq == sent.end();
    let (seq, end) = if is_empty { (low, low) } else { (sent.seq, sent.end()) };
    let skew = other_low - ack;
    let reset_is_right =
        !sent.has(TcpFlags::RST) || (sent.seq - low).abs() <= 1 || sent.has(TcpFlags::ACK) && skew == 0;
    let is_within = end <= from.high
        && seq >= low - (to.window << other_shift)
        && skew >= -W
        && skew <= W << shift
        && reset_is_right;
    let is_near = end <= from.high + W && seq >= low - W;
    let is_end_near = to.stage < 2 || to.stage >= 9 || from.stage >= 9;
    if !(is_within || is_end_near && is_near) {
        return Tracked::Mismatch;
    }
    from.window = from.window.max(sent.window);
    from.low = Some(low.max(end));
    let window = sent.window << shift;
    if ack + window >= to.high {
        to.high = ack + window.max(1);
    }
    if sent.has(TcpFlags::FIN) {
        from.stage = from.stage.max(7);
    }
    if is_within && sent.has(TcpFlags::ACK) {
        to.stage = match to.stage {
            2 => 4,
            7 => 9,
            stage => stage,
        };
    }
    if sent.has(TcpFlags::RST) {
        (from.stage, to.stage) = (10, 10);
    }
    if is_within { Tracked::Accepted } else { Tracked::Loose }
}

/// Where both ends are after a handshake; `at` is where the numbers begin.
fn handshake(at: [i64; 2], scales: [Option<u8>; 2], windows: [i64; 2]) -> ([Peer; 2], [End; 2]) {
    let syn = Sent { flags: 2, seq: at[0], ack: 0, window: windows[0], payload: 0, scale: scales[0] };
    let reply =
        Sent { flags: 18, seq: at[1], ack: at[0] + 1, window: windows[1], payload: 0, scale: scales[1] };
    let mut peers = [Peer::first_sender(&syn.segment()), Peer::silent()];
    let [client, server] = &mut peers;
    assert_eq!(track_segment(server, client, &reply.segment()), Tracked::Accepted);
    let ends = [0, 1].map(|n: usize| End {
        low: Some(at[n] + i64::from(peers[n].low.wrapping_sub(at[n] as u32) as i32)),
        high: at[n] + i64::from(peers[n].high.wrapping_sub(at[n] as u32) as i32),
        window: peers[n].max_window.into(),
        scale: peers[n].scale.is_known().then(|| peers[n].scale.shift()),
        stage: peers[n].stage.0,
    });
    (peers, ends)
}

/// Whether a segment is accepted as one that moves numbers at most.
fn track_plainly(peers: &mut [Peer; 2], is_reply: bool, segment: &Segment) -> bool {
    let [client, server] = peers;
    let (from, to) = if is_reply { (server, client) } else { (client, server) };
    let moved = track_fast(from, to, segment);
    moved.iter().for_each(|moved| moved.apply_to_peers(from, to));
    moved.is_some()
}

/// A number in a segment: near what is expected, at an edge, or anywhere.
fn offset() -> impl Strategy<Value = i64> {
    let near = |center: i64| (-3..=3_i64).prop_map(move |by| center + by);
    prop_oneof![
        6 => near(0),
        1 => near(W),
        1 => near(-W),
        2 => -70_000..70_000_i64,
        1 => -(1 << 29)..(1_i64 << 29),
    ]
}

fn flags() -> impl Strategy<Value = u8> {
    prop_oneof![
        12 => Just(16_u8),
        2 => Just(24),
        2 => Just(17),
        1 => Just(4),
        1 => Just(20),
        1 => Just(2),
        1 => Just(0),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn segments_are_judged_as_the_rules_say(
        at in [(1_i64 << 40)..(1 << 41), (1_i64 << 40)..(1 << 41)],
        scales in [prop::option::of(0_u8..16), prop::option::of(0_u8..16)],
        windows in [0_i64..65_536, 0_i64..65_536],
        segments in prop::collection::vec(
            (
                any::<bool>(),
                flags(),
                offset(),
                offset(),
                0_i64..65_536,
                prop_oneof![Just(0_i64), 0..3000_i64],
            ),
            1..60,
        ),
    ) {
        let (mut peers, mut ends) = handshake(at, scales, windows);
        for (is_reply, flags, seq, ack, window, payload) in segments {
            let from = usize::from(is_reply);
            let [low, other_low] = [ends[from].low.unwrap(), ends[1 - from].low.unwrap()];
            let sent = Sent { flags, seq: low + seq, ack: other_low + ack, window, payload, scale: None };
            // Both numbers stand for their distances only as long as these fit; nor may an end seem
            // not to have sent.
            let fits = |one: i64, other: i64| (one - other).abs() < 1 << 30;
            prop_assume!(
                fits(ends[0].high, ends[0].low.unwrap()) && fits(ends[1].high, ends[1].low.unwrap())
            );
            prop_assume!(low as u32 != 0 && other_low as u32 != 0 && sent.ack as u32 != 0);
            let mut plainly = peers;
            let is_plain = flags & 7 == 0 && track_plainly(&mut plainly, is_reply, &sent.segment());
            let before = peers;
            let ([client, server], [one, other]) = (&mut peers, &mut ends);
            let (tracked, expected) = match is_reply {
                false => (track_segment(client, server, &sent.segment()), step(one, other, &sent)),
                true => (track_segment(server, client, &sent.segment()), step(other, one, &sent)),
            };
            prop_assert_eq!(tracked, expected, "{:?}", sent);
            let are_established = before.iter().all(|peer| peer.stage == Stage::ESTABLISHED);
            let may_be_plain = flags & 7 == 0 && are_established && tracked == Tracked::Accepted;
            prop_assert_eq!(is_plain, may_be_plain);
            prop_assert_eq!(plainly, if is_plain { peers } else { before });
            for (peer, end) in peers.iter().zip(&ends) {
                let known = (end.low.unwrap() as u32, end.high as u32, end.window as u16, end.stage);
                prop_assert_eq!((peer.low, peer.high, peer.max_window, peer.stage.0), known);
            }
        }
    }
}

fn segment(flags: TcpFlags, seq: u32, ack: u32, window: u16) -> Segment {
    Segment { flags, seq, ack, window, payload: 0, scale: None }
}

#[test]
fn scales_hold_only_if_both_syns_had_them() {
    for (scales, known) in [([Some(3), Some(5)], true), ([Some(3), None], false), ([None, Some(5)], false)] {
        let (peers, _) = handshake([1 << 40, 1 << 41], scales, [40_000, 50_000]);
        assert_eq!(peers.iter().all(|peer| peer.scale.is_known()), known, "{scales:?}");
        assert_eq!(peers[0].max_window, if known { 5000 } else { 40_000 });
    }
}

#[test]
fn a_connection_goes_through_its_stages() {
    let ([mut client, mut server], _) = handshake([1 << 40, 1 << 40], [None, None], [1000, 1000]);
    let (a, b) = ((1_i64 << 40) as u32 + 1, (1_i64 << 40) as u32 + 1);
    let mut classes = vec![tcp_class(client.stage, server.stage)];
    let fin = TcpFlags::FIN | TcpFlags::ACK;
    for (is_reply, flags, seq, ack) in [
        (false, TcpFlags::ACK, a, b),
        (false, fin, a, b),
        (true, TcpFlags::ACK, b, a + 1),
        (true, fin, b, a + 1),
        (false, TcpFlags::ACK, a + 1, b + 1),
    ] {
        let segment = segment(flags, seq, ack, 1000);
        let tracked = match is_reply {
            false => track_segment(&mut client, &mut server, &segment),
            true => track_segment(&mut server, &mut client, &segment),
        };
        assert_eq!(tracked, Tracked::Accepted);
        classes.push(tcp_class(client.stage, server.stage));
    }
    use Timeout::{TcpClosed, TcpClosing, TcpEstablished, TcpFinwait, TcpOpening};
    assert_eq!(classes, [TcpOpening, TcpEstablished, TcpClosing, TcpClosing, TcpFinwait, TcpClosed]);
}

#[test]
fn answers_that_contradict_a_handshake_are_told_from_others() {
    let mut client = Peer::first_sender(&segment(TcpFlags::SYN, 1000, 0, 1000));
    let mut server = Peer::silent();
    let stray = segment(TcpFlags::SYN | TcpFlags::ACK, 77, 900_000_000, 1000);
    assert_eq!(track_segment(&mut server, &mut client, &stray), Tracked::MismatchInHandshake);
    // The challenge is forgotten: the right answer is accepted afterwards.
    let right = segment(TcpFlags::SYN | TcpFlags::ACK, 5000, 1001, 1000);
    assert_eq!(track_segment(&mut server, &mut client, &right), Tracked::Accepted);
}

#[test]
fn a_connection_of_which_one_direction_is_seen_is_followed_sloppily() {
    let mut client = Peer::first_sender(&segment(TcpFlags::SYN, 1000, 0, 1000));
    let mut server = Peer::silent();
    track_sloppily(&mut client, &mut server, TcpFlags::ACK);
    assert_eq!((client.stage, server.stage), (Stage::ESTABLISHED, Stage::ESTABLISHED));
    track_sloppily(&mut client, &mut server, TcpFlags::FIN | TcpFlags::ACK);
    assert_eq!(client.stage, Stage::CLOSING);
}
