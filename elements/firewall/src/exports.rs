//! States of a filter on a worker as records of flows, for their export: one for each direction.
use super::interfaces::FIRST;
use artery_common::flow_export::{ExportedFlow, FlowEndReason, FlowExport, FlowRecords};
use artery_device::Interface as Device;
use artery_filter::engine::{ExportedState, Filter, ReportReason};
use artery_filter::facts::Direction;
use std::sync::Arc;
use std::time::Duration;

/// What a worker exports of its states.
pub(super) struct StateExports {
    export: Arc<FlowExport>,
    records: FlowRecords,
    /// The kernel's numbers of the ports' interfaces, 0 for those that the kernel does not have.
    ports: Vec<u32>,
}

impl StateExports {
    /// For a filter with ports of these names.
    pub(super) fn new(export: Arc<FlowExport>, ports: &[String]) -> StateExports {
        let number = |name: &String| Device::find(name).map_or(0, |interface| interface.index);
        let ports = ports.iter().map(number).collect();
        StateExports { export, records: FlowRecords::default(), ports }
    }

    /// Has states reported if flows are exported, and hands over what was reported.
    pub(super) fn export(&mut self, filter: &mut Filter, now: Duration) {
        let Some(active) = self.export.active_timeout() else { return };
        filter.export_states(active);
        if filter.has_exported() {
            let (states, lost) = filter.drain_exported();
            // A state that found no room is lost in both directions.
            self.export.count_lost(2 * lost);
            for state in states {
                self.push_directions(&state);
            }
        }
        self.records.flush(&self.export, now);
    }

    fn push_directions(&mut self, state: &ExportedState) {
        let port = usize::from(state.interface.0).checked_sub(FIRST.into());
        let number = port.and_then(|port| self.ports.get(port)).copied().unwrap_or(0);
        for (n, record) in records_of(state, number).into_iter().enumerate() {
            if state.packets[n] > 0 {
                self.records.push(record, &self.export);
            }
        }
    }
}

/// The records of both directions of a state, made at the interface of this number.
fn records_of(state: &ExportedState, interface: u32) -> [ExportedFlow; 2] {
    let swapped = |[a, b]: [_; 2]| [b, a];
    let is_inbound = state.direction == Direction::In;
    let (ingress, egress) = if is_inbound { (interface, 0) } else { (0, interface) };
    let first = ExportedFlow {
        ends: state.ends,
        translated: state.translated,
        protocol: state.protocol,
        next_hop: None,
        ingress,
        egress,
        packets: state.packets[0],
        bytes: state.bytes[0],
        start: state.start,
        end: state.end,
        reason: match state.reason {
            ReportReason::Active => FlowEndReason::Active,
            ReportReason::Idle => FlowEndReason::Idle,
            ReportReason::Closed => FlowEndReason::EndOfFlow,
            ReportReason::Removed => FlowEndReason::Forced,
        },
    };
    // Answers come with translated addresses, and leave with the first packet's.
    let answers = ExportedFlow {
        ends: swapped(state.translated.unwrap_or(state.ends)),
        translated: state.translated.map(|_| swapped(state.ends)),
        ingress: egress,
        egress: ingress,
        packets: state.packets[1],
        bytes: state.bytes[1],
        ..first
    };
    [first, answers]
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_filter::facts::Interface;
    use artery_wire::IpProtocol;

    #[test]
    fn answers_of_a_translated_state_come_with_its_other_addresses() {
        let [client, outside, server] = [[10, 0, 0, 2], [192, 0, 2, 1], [203, 0, 113, 9]];
        let state = ExportedState {
            ends: [(client.into(), 1024), (server.into(), 80)],
            translated: Some([(outside.into(), 50_001), (server.into(), 80)]),
            protocol: IpProtocol::TCP,
            direction: Direction::Out,
            interface: Interface(2),
            packets: [3, 2],
            bytes: [300, 2000],
            start: Duration::from_secs(1),
            end: Duration::from_secs(2),
            reason: ReportReason::Closed,
        };
        let [first, answers] = records_of(&state, 7);
        assert_eq!((first.ends, first.translated), (state.ends, state.translated));
        assert_eq!((first.ingress, first.egress, first.reason), (0, 7, FlowEndReason::EndOfFlow));
        assert_eq!(answers.ends, [(server.into(), 80), (outside.into(), 50_001)]);
        assert_eq!(answers.translated, Some([(server.into(), 80), (client.into(), 1024)]));
        assert_eq!((answers.ingress, answers.egress, answers.bytes), (7, 0, 2000));
    }
}
