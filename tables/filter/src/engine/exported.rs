//! States for export, as pflow(4) does it: those of rules with `pflow`, when they end and while they go on.
use super::Filter;
use crate::facts::{Direction, Family, Interface};
use crate::options::Timeout;
use crate::states::Key;
use artery_wire::IpProtocol;
use std::net::IpAddr;
use std::time::Duration;

/// Most of them that wait to be taken.
const MOST: usize = 8192;

/// What a state did since it was last reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedState {
    /// Source and destination of the first packet as it came.
    pub ends: [(IpAddr, u16); 2],
    /// The same behind its translation, if there is one.
    pub translated: Option<[(IpAddr, u16); 2]>,
    /// The protocol number of IP.
    pub protocol: IpProtocol,
    /// The direction of the first packet.
    pub direction: Direction,
    /// Where the state was made.
    pub interface: Interface,
    /// Packets of the first packet's direction, and of the other.
    pub packets: [u64; 2],
    /// Bytes of both directions.
    pub bytes: [u64; 2],
    /// When the state, or the period, began, in the time of [`Filter::begin_batch`].
    pub start: Duration,
    /// When the last packet came.
    pub end: Duration,
    /// Why it is reported.
    pub reason: ReportReason,
}

/// Why a state is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportReason {
    /// The state goes on; a report comes at each interval.
    Active,
    /// There were no packets for too long.
    Idle,
    /// Its connection of TCP was closed.
    Closed,
    /// It was removed, or replaced by another.
    Removed,
}

/// What was reported of a state before; zero if nothing was.
#[derive(Clone, Copy, Default)]
struct Reported {
    until_ms: u64,
    packets: [u64; 2],
    bytes: [u64; 2],
}

/// States to be exported.
pub(super) struct Exports {
    active_ms: u64,
    /// By the number of the state, as far as any was reported.
    reported: Vec<Reported>,
    states: Vec<ExportedState>,
    lost: u64,
}

impl Filter {
    /// Has states of rules with `pflow` reported from now on: when they end, and as often as this.
    pub fn export_states(&mut self, active: Duration) {
        let active_ms = active.as_millis() as u64;
        match &mut self.exports {
            Some(exports) => exports.active_ms = active_ms,
            None => {
                self.exports = Some(Exports { active_ms, reported: Vec::new(), states: Vec::new(), lost: 0 });
            }
        }
    }

    /// Whether there are states to be taken.
    #[inline]
    pub fn has_exported(&self) -> bool {
        self.exports.as_ref().is_some_and(|exports| !exports.states.is_empty())
    }

    /// Takes what was reported since the last call, and how many found no room.
    pub fn drain_exported(&mut self) -> (Vec<ExportedState>, u64) {
        self.exports.as_mut().map_or((Vec::new(), 0), |exports| {
            (std::mem::take(&mut exports.states), std::mem::take(&mut exports.lost))
        })
    }

    /// Reports a state that goes on, if it is time for that.
    pub(super) fn report_active(&mut self, number: u32) {
        let Some(exports) = &self.exports else { return };
        let cold = &self.states.cold[number as usize];
        let before = exports.before(number);
        let since = before.until_ms.max(cold.created_ms);
        if cold.is_exported && self.now_ms.saturating_sub(since) >= exports.active_ms {
            self.report_state(number, ReportReason::Active);
        }
    }

    /// Reports a state that ends.
    pub(super) fn report_end(&mut self, number: u32) {
        if self.exports.is_none() {
            return;
        }
        if self.states.cold[number as usize].is_exported {
            let reason = match self.states.unmerged(number).timeout_kind() {
                _ if !self.is_over(number) => ReportReason::Removed,
                Timeout::TcpFinwait | Timeout::TcpClosed => ReportReason::Closed,
                _ => ReportReason::Idle,
            };
            self.report_state(number, reason);
        }
        if let Some(place) = self.exports.as_mut().and_then(|all| all.reported.get_mut(number as usize)) {
            *place = Reported::default();
        }
    }

    /// Takes what was counted so far for reported, as by the filter that the state came from.
    pub(super) fn skip_reported(&mut self, number: u32) {
        let (packets, bytes) = self.state_view(number).counts();
        let until_ms = self.now_ms;
        self.exports.iter_mut().for_each(|all| all.set(number, Reported { until_ms, packets, bytes }));
    }

    fn report_state(&mut self, number: u32, reason: ReportReason) {
        let Some(before) = self.exports.as_ref().map(|exports| exports.before(number)) else { return };
        let view = self.state_view(number);
        let (packets, bytes) = view.counts();
        let since = |now: [u64; 2], then: [u64; 2]| [0, 1].map(|n| now[n].saturating_sub(then[n]));
        let direction = view.direction();
        let [wire, stack] = view.keys().map(|key| packet_ends(&key, direction));
        let (own, other) = if direction == Direction::In { (wire, stack) } else { (stack, wire) };
        // A time of 32 bits, before now.
        let idle_ms = (self.now_ms as u32).wrapping_sub(view.hot.seen);
        let end_ms = self.now_ms.saturating_sub(idle_ms.into());
        let state = ExportedState {
            ends: own,
            translated: (own != other).then_some(other),
            protocol: view.protocol(),
            direction,
            interface: view.cold.interface,
            packets: since(packets, before.packets),
            bytes: since(bytes, before.bytes),
            start: Duration::from_millis(before.until_ms.max(view.cold.created_ms)),
            end: Duration::from_millis(end_ms),
            reason,
        };
        let Some(exports) = &mut self.exports else { return };
        if state.packets != [0; 2] {
            exports.push(state);
            exports.set(number, Reported { until_ms: end_ms, packets, bytes });
        }
    }
}

impl Exports {
    fn before(&self, number: u32) -> Reported {
        self.reported.get(number as usize).copied().unwrap_or_default()
    }

    fn set(&mut self, number: u32, reported: Reported) {
        let place = number as usize;
        if self.reported.len() <= place {
            self.reported.resize(place + 1, Reported::default());
        }
        self.reported[place] = reported;
    }

    fn push(&mut self, state: ExportedState) {
        if self.states.len() < MOST { self.states.push(state) } else { self.lost += 1 }
    }
}

/// Source and destination of a packet of this direction with this key. Protocols without ports have 0.
fn packet_ends(key: &Key, direction: Direction) -> [(IpAddr, u16); 2] {
    let (addresses, ports) = key.packet_ends(direction);
    let address = |bits: u128| match key.family {
        Family::Inet => IpAddr::from((bits as u32).to_be_bytes()),
        Family::Inet6 => IpAddr::from(bits.to_be_bytes()),
    };
    let port = |port: u16| if key.protocol.has_ports() { port } else { 0 };
    [(address(addresses[0]), port(ports[0])), (address(addresses[1]), port(ports[1]))]
}
