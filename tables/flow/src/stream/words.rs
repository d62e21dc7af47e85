//! What states, protocols and ends of flows are called where people and programs read of them.
use crate::{EndReason, FlowState};
use artery_wire::IpProtocol;

/// The name of a state.
pub fn state_name(state: FlowState) -> &'static str {
    match state {
        FlowState::Opening => "opening",
        FlowState::Midway => "midway",
        FlowState::Established => "established",
        FlowState::Fin => "fin",
        FlowState::Closed => "closed",
        FlowState::UdpSingle => "udp-single",
        FlowState::UdpStream => "udp-stream",
        FlowState::Other => "other",
    }
}

/// The state of a name.
pub fn state_of(name: &str) -> Option<FlowState> {
    FlowState::ALL.into_iter().find(|state| state_name(*state) == name)
}

/// The name of a protocol that has ports.
pub fn protocol_name(protocol: IpProtocol) -> &'static str {
    match protocol {
        IpProtocol::TCP => "tcp",
        IpProtocol::UDP => "udp",
        IpProtocol::SCTP => "sctp",
        _ => "other",
    }
}

/// The protocol of a name.
pub fn protocol_of(name: &str) -> Option<IpProtocol> {
    [IpProtocol::TCP, IpProtocol::UDP, IpProtocol::SCTP].into_iter().find(|own| protocol_name(*own) == name)
}

/// Why a flow ended, in a word.
pub fn reason_name(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Idle => "idle",
        EndReason::Displaced => "displaced",
        EndReason::Removed => "removed",
    }
}
