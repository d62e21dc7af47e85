//! Records of a worker's flows for their export: of those that ended, and of those that go on for long. They
//! say what clients sent; packets of servers pass without a flow of their own.
use super::known::FamilyFlows;
use artery_common::flow_export::{End, ExportedFlow, FlowEndReason, FlowExport, FlowRecords};
use artery_flow::balance::Choice;
use artery_flow::{
    EndReason, Flow4, Flow6, FlowCursor, FlowEnd, FlowKey, FlowPeriod, FlowState, FlowTable, Tick,
};
use artery_storage::Pages;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Most flows that one walk looks at.
const WALKED: usize = 4096;
/// How often all flows are looked at within the time after which those that go on are recorded.
const ROUNDS: u32 = 4;

/// What a worker records of its flows.
pub(super) struct FlowAccounts {
    export: Arc<FlowExport>,
    records: FlowRecords,
    /// Whether the tables keep accounts.
    is_on: bool,
    is_nat: bool,
    /// Where the walks over the flows of both families go on.
    walks: [Walk; 2],
}

/// A walk over the flows of a family.
#[derive(Default)]
struct Walk {
    at: FlowCursor,
    /// When it was last continued.
    walked: Duration,
}

impl FlowAccounts {
    pub(super) fn new(export: Arc<FlowExport>, is_nat: bool) -> FlowAccounts {
        let records = FlowRecords::default();
        FlowAccounts { export, records, is_on: false, is_nat, walks: Default::default() }
    }

    /// Has the tables keep accounts if flows are exported; says what is wrong where they can't.
    pub(super) fn begin(
        &mut self,
        v4: &mut FamilyFlows<Flow4>,
        v6: &mut FamilyFlows<Flow6>,
        now: Duration,
    ) -> std::io::Result<()> {
        if self.is_on || self.export.active_timeout().is_none() {
            return Ok(());
        }
        // Tried once.
        self.is_on = true;
        let now = Tick::from_time(now);
        v4.flows.as_mut().map_or(Ok(()), |flows| flows.keep_accounts(now, &Pages))?;
        v6.flows.as_mut().map_or(Ok(()), |flows| flows.keep_accounts(now, &Pages))
    }

    /// Records a flow that has ended.
    #[inline]
    pub(super) fn record_end<K: FlowKey>(&mut self, end: &FlowEnd<K>, choice: &Choice, now: Duration) {
        let Some(period) = end.unreported.filter(|period| period.packets > 0) else { return };
        let reason = match (end.reason, end.state) {
            (EndReason::Idle, FlowState::Fin | FlowState::Closed) => FlowEndReason::EndOfFlow,
            (EndReason::Idle, _) => FlowEndReason::Idle,
            (EndReason::Displaced, _) => FlowEndReason::LackOfResources,
            (EndReason::Removed, _) => FlowEndReason::Forced,
        };
        self.record_period(&end.key, end.answer.action, period, reason, choice, now);
    }

    /// Records the flows of both families that go on: a share of them, by the time since the last call.
    pub(super) fn record_active(
        &mut self,
        v4: &Option<FlowTable<Flow4>>,
        v6: &Option<FlowTable<Flow6>>,
        choice: &Choice,
        now: Duration,
    ) {
        let Some(active) = self.export.active_timeout().filter(|_| self.is_on) else { return };
        self.walk(v4, 0, active, choice, now);
        self.walk(v6, 1, active, choice, now);
    }

    /// Records what was not recorded of all flows, since there will be no later record of them.
    pub(super) fn record_rest(
        &mut self,
        v4: &Option<FlowTable<Flow4>>,
        v6: &Option<FlowTable<Flow6>>,
        choice: &Choice,
        now: Duration,
    ) {
        if self.export.active_timeout().is_some() && self.is_on {
            self.record_table(v4, choice, now);
            self.record_table(v6, choice, now);
        }
    }

    fn record_table<K: FlowKey>(&mut self, flows: &Option<FlowTable<K>>, choice: &Choice, now: Duration) {
        let Some(flows) = flows else { return };
        let mut at = Some(FlowCursor::default());
        while let Some(from) = at {
            at = flows.report_active(from, WALKED, Tick::from_time(now), Duration::ZERO, |view, period| {
                let (key, action) = (view.key(), view.answer().action);
                self.record_period(&key, action, period, FlowEndReason::Forced, choice, now);
            });
            self.flush(now);
        }
    }

    /// Ends the accounts, which another balancer continues.
    pub(super) fn hand_over(&mut self, now: Duration) {
        self.flush(now);
        self.is_on = false;
    }

    fn walk<K: FlowKey>(
        &mut self,
        flows: &Option<FlowTable<K>>,
        family: usize,
        active: Duration,
        choice: &Choice,
        now: Duration,
    ) {
        let Some(flows) = flows else { return };
        let Walk { at, walked } = &self.walks[family];
        let (from, since) = (*at, now.saturating_sub(*walked));
        let round = (active / ROUNDS).as_micros().max(1);
        let share = u128::from(flows.len()) * since.as_micros() / round;
        let most = (share as usize).clamp(64, WALKED);
        let next = flows.report_active(from, most, Tick::from_time(now), active, |view, period| {
            let (key, action) = (view.key(), view.answer().action);
            self.record_period(&key, action, period, FlowEndReason::Active, choice, now);
        });
        self.walks[family] = Walk { at: next.unwrap_or_default(), walked: now };
    }

    fn record_period<K: FlowKey>(
        &mut self,
        key: &K,
        action: u32,
        FlowPeriod { start, end, packets, bytes }: FlowPeriod,
        reason: FlowEndReason,
        choice: &Choice,
        now: Duration,
    ) {
        let (ports, addresses) = (key.ports(), key.addresses());
        let ends: [End; 2] = [(addresses[0], ports[0]), (addresses[1], ports[1])];
        let member = choice.member(action);
        let translated = |address: IpAddr, port: Option<u16>| [ends[0], (address, port.unwrap_or(ends[1].1))];
        let time = |tick: Tick| now.saturating_sub(tick.age(Tick::from_time(now)));
        let record = ExportedFlow {
            ends,
            translated: member.filter(|_| self.is_nat).map(|member| translated(member.address, member.port)),
            protocol: key.protocol(),
            next_hop: member.filter(|_| !self.is_nat).map(|member| member.address),
            ingress: 0,
            egress: 0,
            packets,
            bytes,
            start: time(start),
            end: time(end),
            reason,
        };
        self.records.push(record, &self.export);
    }

    /// Hands the records over.
    #[inline]
    pub(super) fn flush(&mut self, now: Duration) {
        self.records.flush(&self.export, now);
    }
}
