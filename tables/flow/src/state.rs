//! What a flow has shown of itself: its state, whether it is proven, and how long it may be idle.
use super::key::PacketInfo;
use super::tick::ticks_of;
use artery_wire::{IpProtocol, TcpFlags};
use std::time::Duration;

/// What has been seen of a flow; it decides how long the flow may be idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowState {
    /// TCP: a SYN and nothing after it.
    Opening,
    /// TCP: fewer than three packets of a connection whose SYN was not seen.
    Midway,
    /// TCP: the connection is used.
    Established,
    /// TCP: one side has no more to send.
    Fin,
    /// TCP: the connection was reset.
    Closed,
    /// UDP: fewer than three datagrams.
    UdpSingle,
    /// UDP: three datagrams or more.
    UdpStream,
    /// Any other protocol, and flows to a destination.
    Other,
}

impl FlowState {
    /// All states, in the order of their numbers.
    pub const ALL: [FlowState; 8] = [
        FlowState::Opening,
        FlowState::Midway,
        FlowState::Established,
        FlowState::Fin,
        FlowState::Closed,
        FlowState::UdpSingle,
        FlowState::UdpStream,
        FlowState::Other,
    ];

    /// The state of a flow whose first packet looks so.
    #[inline]
    pub fn of_first(sight: &PacketInfo) -> FlowState {
        match sight.protocol {
            IpProtocol::TCP if sight.flags.intersects(TcpFlags::RST) => FlowState::Closed,
            IpProtocol::TCP if sight.flags.intersects(TcpFlags::FIN) => FlowState::Fin,
            IpProtocol::TCP if sight.flags.intersects(TcpFlags::SYN) => FlowState::Opening,
            IpProtocol::TCP => FlowState::Midway,
            IpProtocol::UDP => FlowState::UdpSingle,
            _ => FlowState::Other,
        }
    }

    /// The state after one more packet, number `packets` of the flow.
    ///
    /// A reset may be forged by someone who guesses the ports, and sequence numbers are not known here. So a
    /// packet after it shows that the connection goes on, and gives it the time of one that is about to end.
    #[inline]
    pub(super) fn next_state(self, sight: &PacketInfo, packets: u64) -> FlowState {
        match self {
            FlowState::UdpSingle if packets >= PROOF => FlowState::UdpStream,
            FlowState::UdpSingle | FlowState::UdpStream | FlowState::Other => self,
            _ if sight.flags.intersects(TcpFlags::RST) => FlowState::Closed,
            _ if sight.flags.intersects(TcpFlags::FIN) => FlowState::Fin,
            _ if sight.flags.intersects(TcpFlags::SYN) => self.after_syn(sight.flags),
            FlowState::Opening => FlowState::Established,
            FlowState::Midway if packets >= PROOF => FlowState::Established,
            FlowState::Closed => FlowState::Fin,
            _ => self,
        }
    }

    /// A SYN restarts a connection that has ended; it does not change one in use (RFC 9293 section 3.10.7.4).
    fn after_syn(self, flags: TcpFlags) -> FlowState {
        match self {
            FlowState::Fin | FlowState::Closed | FlowState::Midway if !flags.intersects(TcpFlags::ACK) => {
                FlowState::Opening
            }
            _ => self,
        }
    }

    /// Whether only time, or TCP's control bits, end this state.
    #[inline(always)]
    pub(super) fn is_in_use(self) -> bool {
        matches!(self, FlowState::Established | FlowState::UdpStream | FlowState::Other)
    }

    /// Says whether a flow in this state after `packets` packets is more than an attempt.
    #[inline]
    pub(super) fn is_proven(self, packets: u64) -> bool {
        match self {
            FlowState::Established | FlowState::UdpStream => true,
            FlowState::Opening => false,
            _ => packets >= PROOF,
        }
    }
}

/// Packets that prove a flow in which no SYN was seen: two are what a flood of small queries
/// and their retries has.
const PROOF: u64 = 3;

/// How long a flow may be idle before it is forgotten; at most 48 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleTimes {
    /// TCP: after a SYN, and while it is not known whether the flow is more than an attempt.
    pub syn: Duration,
    /// TCP: connections in use.
    pub established: Duration,
    /// TCP: one side has no more to send.
    pub fin: Duration,
    /// TCP: after a reset.
    pub closed: Duration,
    /// UDP: fewer than three datagrams.
    pub udp_single: Duration,
    /// UDP: three datagrams or more.
    pub udp_stream: Duration,
    /// Idle timeout of all other protocols.
    pub other: Duration,
}

impl IdleTimes {
    /// Half a minute for all, as Li and Macy had in 2009.
    pub const PAPER: IdleTimes = IdleTimes::all(Duration::from_secs(30));

    /// The same time for all states.
    pub const fn all(idle: Duration) -> IdleTimes {
        let (syn, established, fin, closed) = (idle, idle, idle, idle);
        IdleTimes { syn, established, fin, closed, udp_single: idle, udp_stream: idle, other: idle }
    }

    /// The time for a state.
    pub fn time_for(&self, state: FlowState) -> Duration {
        match state {
            FlowState::Opening | FlowState::Midway => self.syn,
            FlowState::Established => self.established,
            FlowState::Fin => self.fin,
            FlowState::Closed => self.closed,
            FlowState::UdpSingle => self.udp_single,
            FlowState::UdpStream => self.udp_stream,
            FlowState::Other => self.other,
        }
    }

    /// The times in ticks, by the number of the state.
    pub(super) fn ticks_by_state(&self) -> [u32; 8] {
        FlowState::ALL.map(|state| ticks_of(self.time_for(state)))
    }
}

impl Default for IdleTimes {
    fn default() -> IdleTimes {
        let seconds = Duration::from_secs;
        IdleTimes {
            syn: seconds(30),
            established: seconds(86_400),
            fin: seconds(60),
            closed: seconds(10),
            udp_single: seconds(30),
            udp_stream: seconds(180),
            other: seconds(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The states of a flow of TCP after each of its packets, and which of them prove it.
    fn tcp(flags: &[TcpFlags]) -> Vec<(FlowState, bool)> {
        let sight = |flags| PacketInfo { protocol: IpProtocol::TCP, flags, bytes: 40 };
        let mut state = FlowState::of_first(&sight(flags[0]));
        let mut states = vec![(state, false)];
        for (n, flags) in flags.iter().enumerate().skip(1) {
            state = state.next_state(&sight(*flags), n as u64 + 1);
            states.push((state, state.is_proven(n as u64 + 1)));
        }
        states
    }

    const SYN: TcpFlags = TcpFlags::SYN;
    const ACK: TcpFlags = TcpFlags::ACK;
    const FIN: TcpFlags = TcpFlags::FIN;
    const RST: TcpFlags = TcpFlags::RST;

    #[test]
    fn a_connection_is_proven_by_what_follows_its_syn() {
        use FlowState::*;
        assert_eq!(tcp(&[SYN, ACK]), [(Opening, false), (Established, true)]);
        assert_eq!(tcp(&[SYN, SYN, SYN, SYN]), [(Opening, false); 4]);
        assert_eq!(tcp(&[SYN, RST]), [(Opening, false), (Closed, false)]);
    }

    #[test]
    fn without_a_syn_the_third_packet_proves() {
        use FlowState::*;
        assert_eq!(tcp(&[ACK, ACK, ACK]), [(Midway, false), (Midway, false), (Established, true)]);
        let sight = PacketInfo { protocol: IpProtocol::UDP, ..PacketInfo::default() };
        assert_eq!(FlowState::of_first(&sight), UdpSingle);
        assert_eq!(UdpSingle.next_state(&sight, 2), UdpSingle);
        assert_eq!(UdpSingle.next_state(&sight, 3), UdpStream);
        assert!(!Other.is_proven(2) && Other.is_proven(3) && UdpStream.is_proven(3));
    }

    #[test]
    fn a_forged_reset_does_not_end_what_goes_on() {
        use FlowState::*;
        let states: Vec<_> = tcp(&[SYN, ACK, RST, ACK, ACK]).into_iter().map(|(state, _)| state).collect();
        assert_eq!(states, [Opening, Established, Closed, Fin, Fin]);
    }

    #[test]
    fn a_syn_opens_what_had_ended_and_nothing_else() {
        use FlowState::*;
        let states: Vec<_> = tcp(&[SYN, ACK, SYN, FIN | ACK, ACK, SYN]).into_iter().map(|(s, _)| s).collect();
        assert_eq!(states, [Opening, Established, Established, Fin, Fin, Opening]);
    }
}
