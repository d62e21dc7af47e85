//! Export, import and flush of flows, in small parts, so that packets are processed in between.
use super::balancer_worker::FlowBalancer;
use super::exceptions::{self, Exceptions};
use super::known::{FlowImport, ImportStats, Incoming};
use super::owners::FlowOwners;
use super::placement::Placement;
use artery_engine::HandlerError;
use artery_flow::balance::{Choice, MemberId};
use artery_flow::stream::{AnyKey, StreamFlow, StreamItem, StreamReader, with_key, write_item};
use artery_flow::{Answer, Flow4, Flow6, FlowCursor, FlowKey, FlowRecord, FlowTable, OwnerId, Tick};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use std::time::Duration;

/// Most flows of an exported part.
const PART: usize = 512;
/// Flows that are looked at for a part of exceptions, at most, or less than a step more.
const EXAMINED: usize = 4096;
/// Most flows of an imported part.
const MOST_INCOMING: usize = 4096;
/// Flows that one step of a flush scans.
const FLUSHED: usize = 1024;
/// The walk is in the table of IPv6.
const SECOND: u64 = 1 << 32;

/// The counts of imports, and the flush in progress.
#[derive(Debug, Default)]
pub(super) struct FlowExchange {
    pub(super) imported: ImportStats,
    pub(super) owners: FlowOwners,
    flush: Option<Flush>,
    flushed: u64,
}

/// A flush in progress: of one member's flows or of all, and its position.
#[derive(Clone, Copy, Debug)]
struct Flush {
    action: Option<u32>,
    at: u64,
}

/// A part of a worker's flows, for `flows_part`: `WORKER NEXT ITEMS`, where NEXT is a hyphen at the end.
pub(super) fn export_part(
    b: &FlowBalancer,
    asked: &str,
    worker: usize,
    choice: &Choice,
    now: Duration,
) -> Result<String, HandlerError> {
    let Some(from) = part_start(asked, worker)? else { return Ok(String::new()) };
    let mut items = PartWriter::new(choice);
    let next = match from < SECOND {
        true => export_flows(&b.v4.flows, from, Tick::from_time(now), &mut items).or(Some(SECOND)),
        false => export_flows(&b.v6.flows, from - SECOND, Tick::from_time(now), &mut items)
            .map(|next| next + SECOND),
    };
    Ok(items.finish(worker, next))
}

/// The same of exceptions, for `exceptions_part`.
pub(super) fn export_exceptions(
    b: &mut FlowBalancer,
    asked: &str,
    worker: usize,
    choice: &Choice,
    now: Duration,
) -> Result<String, HandlerError> {
    check_pure(choice)?;
    let Some(mut from) = part_start(asked, worker)? else { return Ok(String::new()) };
    let (mut items, mut examined) = (PartWriter::new(choice), 0);
    items.owners = Some(&b.exchange.owners);
    let placement = Placement { choice, seed: &b.shared.seed };
    let exceptions = &mut b.followed.exceptions;
    loop {
        let next = match from < SECOND {
            true => {
                add_exceptions(&b.v4.flows, from, exceptions, placement, now, &mut items).or(Some(SECOND))
            }
            false => add_exceptions(&b.v6.flows, from - SECOND, exceptions, placement, now, &mut items)
                .map(|next| next + SECOND),
        };
        examined += exceptions::STEP;
        match next {
            Some(next) if examined < EXAMINED && items.flows < PART => from = next,
            next => return Ok(items.finish(worker, next)),
        }
    }
}

/// Refuses what needs a method by which machines with the same members agree.
pub(super) fn check_pure(choice: &Choice) -> Result<(), HandlerError> {
    match choice.method() {
        method if method.is_pure() => Ok(()),
        method => Err(HandlerError::refused(format!(
            "METHOD {method} does not give a flow the same member everywhere, so that there are no \
             exceptions; use maglev, hash or xor, or export and follow all flows"
        ))),
    }
}

/// Where a part begins; None if nothing is asked of this worker.
fn part_start(asked: &str, worker: usize) -> Result<Option<u64>, HandlerError> {
    match asked.trim() {
        "" => Ok(Some(0)),
        asked => of_worker(asked, worker),
    }
}

/// The number for a worker in `WORKER:NUMBER …`.
pub(super) fn of_worker(asked: &str, worker: usize) -> Result<Option<u64>, HandlerError> {
    let mut own = None;
    for word in asked.split_ascii_whitespace() {
        let both = word.split_once(':').and_then(|(of, number)| {
            Some((of.parse::<usize>().ok()?, number.parse::<u64>().ok().filter(|n| n >> 62 == 0)?))
        });
        let wants = || HandlerError::refused(format!("'{word}' is not WORKER:NUMBER"));
        let (of, number) = both.ok_or_else(wants)?;
        own = own.or((of == worker).then_some(number));
    }
    Ok(own)
}

/// Appends flows to a part; returns where to continue.
fn export_flows<K: FlowKey>(
    flows: &Option<FlowTable<K>>,
    from: u64,
    now: Tick,
    items: &mut PartWriter<'_>,
) -> Option<u64> {
    let cursor = FlowCursor::from_number(from.min(u32::MAX.into()) as u32);
    let next = flows.as_ref()?.walk_flows(cursor, PART, |view| items.add_flow(view.full_record(now)));
    next.map(|next| next.number().into())
}

/// Appends the exceptions of some flows to a part; returns where to continue. Those who follow learn of what
/// happens to these from then on.
fn add_exceptions<K: FlowKey>(
    flows: &Option<FlowTable<K>>,
    from: u64,
    exceptions: &mut Exceptions,
    placement: Placement<'_>,
    now: Duration,
    items: &mut PartWriter<'_>,
) -> Option<u64> {
    let cursor = FlowCursor::from_number(from.min(u32::MAX.into()) as u32);
    let flows = flows.as_ref()?;
    let next = flows.walk_flows(cursor, exceptions::STEP, |flow| {
        if exceptions.check_exported(flows, &flow, placement) {
            items.set_owner(flow.owner());
            items.add_flow(flow.full_record(Tick::from_time(now)));
        }
    });
    next.map(|next| next.number().into())
}

/// Items of a part, which names the members that it needs.
struct PartWriter<'a> {
    choice: &'a Choice,
    /// Whether each member, by its index, was written.
    named: Vec<bool>,
    bytes: Vec<u8>,
    flows: usize,
    /// Of copies, whose names go before them; none where that is not wanted.
    owners: Option<&'a FlowOwners>,
    owner: OwnerId,
}

impl PartWriter<'_> {
    fn new(choice: &Choice) -> PartWriter<'_> {
        let bytes = Vec::with_capacity(PART * 48);
        PartWriter { choice, named: Vec::new(), bytes, flows: 0, owners: None, owner: OwnerId::NONE }
    }

    /// What a handler says of a part.
    fn finish(self, worker: usize, next: Option<u64>) -> String {
        let next = next.map_or("-".to_string(), |next| next.to_string());
        format!("{worker} {next} {}\n", BASE64_STANDARD.encode(&self.bytes))
    }

    /// Says whose copies follow, if that is another owner than before.
    fn set_owner(&mut self, owner: OwnerId) {
        if let Some(owners) = self.owners.filter(|_| owner != self.owner) {
            self.owner = owner;
            write_item(&StreamItem::Owner(owners.name(owner)), &mut self.bytes);
        }
    }

    /// A flow without a member is left out: its next packet gives it another one.
    fn add_flow<K: FlowKey>(&mut self, record: FlowRecord<K>) {
        let Some(member) = self.choice.member(record.answer.action) else { return };
        let Some(place) = MemberId::from_action(record.answer.action).map(MemberId::place) else { return };
        if self.named.len() <= place {
            self.named.resize(place + 1, false);
        }
        if !std::mem::replace(&mut self.named[place], true) {
            write_item(&StreamItem::Member(place as u16, &member.name), &mut self.bytes);
        }
        self.flows += 1;
        let answer = Answer { action: place as u32, generation: 0 };
        write_item(
            &StreamItem::Flow(with_key(record, AnyKey::from_key(&record.key), answer)),
            &mut self.bytes,
        );
    }
}

/// Imports flows; all of them are valid, or none is imported.
pub(super) fn import_flows(
    b: &mut FlowBalancer,
    text: &str,
    choice: &Choice,
    now: Duration,
) -> Result<(), HandlerError> {
    if b.v4.flows.is_none() {
        return Err(HandlerError::refused(
            "no flows are remembered here: STATE is false, and so none are taken in",
        ));
    }
    let bytes = BASE64_STANDARD.decode(text.trim());
    let bytes =
        bytes.map_err(|wrong| HandlerError::refused(format!("flows are wanted, as base64: {wrong}")))?;
    let mut taken = ImportStats::default();
    let (v4, v6) = parse_stream(b, &bytes, choice, &mut taken)?;
    let (local, followed, nat) = (&mut b.local, &mut b.followed, b.shared.nat.as_ref());
    let (accounts, seed) = (&mut b.accounts, &b.shared.seed);
    let mut incoming = FlowImport { choice, local, seed, followed, accounts, nat, taken, now };
    b.v4.import_flows(&v4, &mut incoming);
    b.v6.import_flows(&v6, &mut incoming);
    b.exchange.imported.add(incoming.taken);
    Ok(())
}

type FamilyRecords = (Vec<Incoming<Flow4>>, Vec<Incoming<Flow6>>);

/// Parses a whole stream, and sorts out the flows that can be imported.
fn parse_stream(
    b: &mut FlowBalancer,
    bytes: &[u8],
    choice: &Choice,
    taken: &mut ImportStats,
) -> Result<FamilyRecords, HandlerError> {
    let mut reader = StreamReader::new(bytes).map_err(|wrong| HandlerError::refused(wrong.to_string()))?;
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    let mut members: Vec<Option<MemberId>> = Vec::new();
    let mut owner = OwnerId::NONE;
    loop {
        let item = reader.next_item();
        let item =
            item.map_err(|wrong| HandlerError::refused(format!("item {}: {wrong}", reader.items_begun())))?;
        match item {
            None => return Ok((v4, v6)),
            Some(StreamItem::End(_)) => {}
            Some(StreamItem::Member(number, name)) => {
                members.resize(members.len().max(usize::from(number) + 1), None);
                members[usize::from(number)] = choice.find_named(name);
            }
            Some(StreamItem::Flow(flow)) => {
                let member = members.get(flow.answer.action as usize).copied().flatten();
                let Some(answer) = resolve_answer(b, &flow, member, choice, taken) else { continue };
                match flow.key {
                    AnyKey::V4(key) => v4.push(Incoming::Flow(with_key(flow, key, answer), owner)),
                    AnyKey::V6(key) => v6.push(Incoming::Flow(with_key(flow, key, answer), owner)),
                }
            }
            Some(StreamItem::Owner(name)) => owner = b.exchange.owners.find_or_add(name)?,
            Some(StreamItem::Ended(key, epoch)) => match key {
                AnyKey::V4(key) => v4.push(Incoming::Ended(key, owner, epoch)),
                AnyKey::V6(key) => v6.push(Incoming::Ended(key, owner, epoch)),
            },
        }
        if v4.len() + v6.len() > MOST_INCOMING {
            return Err(HandlerError::refused(format!(
                "at most {MOST_INCOMING} flows are taken in at a time"
            )));
        }
    }
}

/// The member of an imported flow here; None, which is counted, if there is none.
fn resolve_answer(
    b: &FlowBalancer,
    flow: &StreamFlow,
    member: Option<MemberId>,
    choice: &Choice,
    taken: &mut ImportStats,
) -> Option<Answer> {
    let ([_, (address, port)], protocol) = (flow.key.endpoints(), flow.key.protocol());
    if !b.shared.services.iter().any(|service| service.is_at(address, port, protocol)) {
        taken.no_service += 1;
        return None;
    }
    if member.is_none() {
        taken.no_member += 1;
    }
    Some(Answer { action: member?.action(), generation: choice.generation() })
}

/// Where the exchange of a worker is, a line of JSON.
pub(super) fn progress_json(b: &FlowBalancer, worker: usize) -> String {
    let FlowExchange { imported: taken, flush, flushed, .. } = &b.exchange;
    let line = json!({
        "worker": worker, "new": taken.new, "newer": taken.newer, "known": taken.known,
        "no_room": taken.no_room, "no_member": taken.no_member, "no_service": taken.no_service,
        "ended": taken.ended,
        "flushing": flush.is_some(), "flushed": flushed, "next_event": b.followed.all.queue.next_number(),
        "next_exception": b.followed.exceptions.next_number(),
    });
    format!("{line}\n")
}

/// Starts to flush the flows of a member, or all.
pub(super) fn begin_flush(b: &mut FlowBalancer, which: &str, choice: &Choice) -> Result<(), HandlerError> {
    let action = match which.trim() {
        "all" => None,
        "" => return Err(HandlerError::refused("whose? name a member, or say 'all'")),
        name => {
            let known = || {
                HandlerError::refused(format!(
                    "no flows can be those of '{name}': it is not a member, or is down"
                ))
            };
            Some(choice.find_named(name).ok_or_else(known)?.action())
        }
    };
    b.exchange.flush = Some(Flush { action, at: 0 });
    Ok(())
}

/// Runs one step of the flush; returns whether more are needed.
pub(super) fn flush_step(b: &mut FlowBalancer) -> bool {
    let Some(Flush { action, at }) = b.exchange.flush else { return false };
    let mut count = 0;
    let next = match at < SECOND {
        true => flush_some(&mut b.v4.flows, at, action, &mut count).or(Some(SECOND)),
        false => flush_some(&mut b.v6.flows, at - SECOND, action, &mut count).map(|next| next + SECOND),
    };
    b.exchange.flushed += count;
    b.exchange.flush = next.map(|at| Flush { action, at });
    b.exchange.flush.is_some()
}

fn flush_some<K: FlowKey>(
    flows: &mut Option<FlowTable<K>>,
    at: u64,
    action: Option<u32>,
    count: &mut u64,
) -> Option<u64> {
    let next = flows.as_mut()?.flush_flows(FlowCursor::from_number(at as u32), FLUSHED, |view| {
        let is_meant = action.is_none_or(|action| view.answer().action == action);
        *count += u64::from(is_meant);
        is_meant
    });
    next.map(|next| next.number().into())
}

#[cfg(test)]
mod tests;
