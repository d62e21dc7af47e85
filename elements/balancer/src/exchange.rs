//! Export, import and flush of flows, in small parts, so that packets are processed in between.
use super::balancer_worker::FlowBalancer;
use super::exceptions::{self, Exceptions};
use super::known::{FlowImport, ImportStats};
use super::placement::Placement;
use artery_engine::HandlerError;
use artery_flow::balance::{Choice, MemberId};
use artery_flow::stream::{AnyKey, StreamFlow, StreamItem, StreamReader, with_key, write_item};
use artery_flow::{Answer, Flow4, Flow6, FlowCursor, FlowKey, FlowRecord, FlowTable, Tick};
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
}

impl PartWriter<'_> {
    fn new(choice: &Choice) -> PartWriter<'_> {
        PartWriter { choice, named: Vec::new(), bytes: Vec::with_capacity(PART * 48), flows: 0 }
    }

    /// What a handler says of a part.
    fn finish(self, worker: usize, next: Option<u64>) -> String {
        let next = next.map_or("-".to_string(), |next| next.to_string());
        format!("{worker} {next} {}\n", BASE64_STANDARD.encode(&self.bytes))
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

type FamilyRecords = (Vec<FlowRecord<Flow4>>, Vec<FlowRecord<Flow6>>);

/// Parses a whole stream, and sorts out the flows that can be imported.
fn parse_stream(
    b: &FlowBalancer,
    bytes: &[u8],
    choice: &Choice,
    taken: &mut ImportStats,
) -> Result<FamilyRecords, HandlerError> {
    let mut reader = StreamReader::new(bytes).map_err(|wrong| HandlerError::refused(wrong.to_string()))?;
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    let mut members: Vec<Option<MemberId>> = Vec::new();
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
                    AnyKey::V4(key) => v4.push(with_key(flow, key, answer)),
                    AnyKey::V6(key) => v6.push(with_key(flow, key, answer)),
                }
            }
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
    let FlowExchange { imported: taken, flush, flushed } = &b.exchange;
    let line = json!({
        "worker": worker, "new": taken.new, "newer": taken.newer, "known": taken.known,
        "no_room": taken.no_room, "no_member": taken.no_member, "no_service": taken.no_service,
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
mod tests {
    use super::*;
    use crate::flow_balancer::CLASS;
    use artery_engine::Bench;
    use artery_flow::stream::write_header;
    use artery_wire::TcpFlags;
    use artery_wire::build::{ip4, ip6};
    use serde_json::Value;
    use std::collections::{HashMap, HashSet};
    use std::net::Ipv4Addr;

    fn bench(more: &str) -> Bench {
        let config = format!("SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2{more}");
        Bench::setup(&CLASS, &config).outputs(2).build().unwrap_or_else(|errors| panic!("{errors:?}"))
    }
    /// How many flows of new connections each member gets.
    fn open(bench: &mut Bench, clients: std::ops::Range<u16>) -> HashMap<u8, usize> {
        let mut shares = HashMap::new();
        for client in clients {
            for flags in [TcpFlags::SYN, TcpFlags::ACK] {
                bench
                    .push(0, ip4().src("198.51.100.7").dst("192.0.2.1").tcp(client, 80).flags(flags).bytes());
            }
            let member: Ipv4Addr = bench.next_sent(0).unwrap().dst_ip();
            assert_eq!(bench.next_sent(0).unwrap().dst_ip(), member);
            *shares.entry(member.octets()[3]).or_insert(0) += 1;
        }
        shares
    }
    /// Exports all flows of a balancer, as whole streams.
    fn parts(bench: &mut Bench) -> Vec<Vec<u8>> {
        let (mut parts, mut asked) = (Vec::new(), String::new());
        loop {
            let text = bench.read("flows_part", &asked).unwrap();
            let words: Vec<_> = text.split_whitespace().collect();
            let items = BASE64_STANDARD.decode(words.get(2).unwrap_or(&"")).unwrap();
            let mut reader = StreamReader::of_items(&items);
            let mut flows = 0;
            while reader.bytes_left() > 0 {
                flows += u64::from(matches!(reader.next_item().unwrap(), Some(StreamItem::Flow(_))));
            }
            let mut stream = Vec::new();
            write_header(&mut stream);
            stream.extend(&items);
            write_item(&StreamItem::End(flows), &mut stream);
            parts.push(stream);
            match words[1] {
                "-" => return parts,
                next => asked = format!("7:0 {}:{next}", words[0]),
            }
        }
    }
    fn count(bench: &mut Bench, key: &str) -> u64 {
        let progress: Value = serde_json::from_str(&bench.read("exchange", "").unwrap()).unwrap();
        progress[key].as_u64().unwrap_or_else(|| panic!("{key} in {progress}"))
    }

    #[test]
    fn flows_of_both_families_go_out_part_by_part_and_come_in_once() {
        let both = "SERVICE [2001:db8::1]:80, MEMBER a 2001:db8:1::1, MEMBER b 2001:db8:1::2";
        for (config, is_v6) in
            [("SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2", false), (both, true)]
        {
            let bench = || Bench::setup(&CLASS, config).outputs(2).build().unwrap();
            let (mut first, mut second) = (bench(), bench());
            for client in 1..=1200 {
                first.push(
                    0,
                    match is_v6 {
                        false => ip4().src("198.51.100.7").dst("192.0.2.1").tcp(client, 80).bytes(),
                        true => ip6().src("2001:db8::7").dst("2001:db8::1").tcp(client, 80).bytes(),
                    },
                );
                first.next_sent(0).unwrap();
            }
            let parts = parts(&mut first);
            assert_eq!(parts.len(), 4, "three of the family, and one of the other");
            for part in parts.iter().chain(&parts) {
                second.write("import_flows", &BASE64_STANDARD.encode(part)).unwrap();
            }
            assert_eq!((count(&mut second, "new"), count(&mut second, "known")), (1200, 1200));
            assert_eq!(second.read("flows", "").unwrap(), "1200");
        }
    }

    #[test]
    fn a_part_that_makes_no_sense_or_is_too_large_changes_nothing() {
        let (mut first, mut second) = (bench(""), bench(""));
        open(&mut first, 1..401);
        let part = parts(&mut first).swap_remove(0);
        for len in (0..part.len()).step_by(7) {
            assert!(second.write("import_flows", &BASE64_STANDARD.encode(&part[..len])).is_err(), "{len}");
        }
        // The last flow's source port; behind it are its counts, its addresses, and the end.
        let mut damaged = part.clone();
        let at = part.len() - 11 - 24 - 4;
        damaged[at..at + 2].fill(0);
        let refusal =
            second.write("import_flows", &BASE64_STANDARD.encode(&damaged)).unwrap_err().to_string();
        assert_eq!(refusal, "item 402: port 0");
        assert!(second.write("import_flows", "no base64").is_err());
        assert_eq!(second.read("flows", "").unwrap(), "0");
        let mut many = Vec::new();
        write_header(&mut many);
        for (number, name) in [(0, "a"), (1, "b")] {
            write_item(&StreamItem::Member(number, name), &mut many);
        }
        let flow = part[part.len() - 11 - 42..part.len() - 11].to_vec();
        (0..=MOST_INCOMING).for_each(|_| many.extend(&flow));
        let refusal = second.write("import_flows", &BASE64_STANDARD.encode(&many)).unwrap_err().to_string();
        assert_eq!(refusal, "at most 4096 flows are taken in at a time");
        assert_eq!(second.read("flows", "").unwrap(), "0");
        let mut stateless = bench(", STATE false");
        assert!(stateless.write("import_flows", &BASE64_STANDARD.encode(&part)).is_err());
    }

    #[test]
    fn flows_to_other_services_and_of_other_members_are_counted_and_left_out() {
        let mut first = bench("");
        let shares = open(&mut first, 1..401);
        let part = parts(&mut first).swap_remove(0);
        for (config, key, expected) in [
            ("SERVICE 192.0.2.1:80, MEMBER a 10.0.0.9", "no_member", shares[&2] as u64),
            ("SERVICE 192.0.2.1:81, MEMBER a 10.0.0.1", "no_service", 400),
        ] {
            let mut second = Bench::setup(&CLASS, config).outputs(2).build().unwrap();
            second.write("import_flows", &BASE64_STANDARD.encode(&part)).unwrap();
            assert_eq!(count(&mut second, key), expected, "{config}");
            assert_eq!(second.read("flows", "").unwrap(), (400 - expected).to_string());
        }
    }

    #[test]
    fn in_a_full_table_the_oldest_that_came_in_make_room_and_what_packets_were_seen_of_stays() {
        let mut first = bench("");
        open(&mut first, 1..401);
        let part = BASE64_STANDARD.encode(&parts(&mut first)[0]);
        let mut second = bench(", FLOWS 100");
        open(&mut second, 501..541);
        second.write("import_flows", &part).unwrap();
        assert_eq!((count(&mut second, "new"), count(&mut second, "no_room")), (400, 0));
        assert_eq!(second.read("flows", "").unwrap(), "100");
        assert!(second.read("counts", "").unwrap().contains("flows-displaced 340\n"));
        let mut full = bench(", FLOWS 100");
        open(&mut full, 501..601);
        full.write("import_flows", &part).unwrap();
        assert_eq!((count(&mut full, "new"), count(&mut full, "no_room")), (0, 400));
        assert_eq!(full.read("flows", "").unwrap(), "100");
    }

    #[test]
    fn the_member_with_fewest_flows_gets_the_next_ones_also_after_flows_have_ended_or_come_in() {
        let mut first = bench(", METHOD least-loaded");
        assert_eq!(open(&mut first, 1..101), HashMap::from([(1, 50), (2, 50)]));
        let part = parts(&mut first).swap_remove(0);
        first.write("flush_flows", "a").unwrap();
        first.run();
        assert_eq!((count(&mut first, "flushed"), first.read("flows", "").unwrap()), (50, "50".to_string()));
        assert_eq!(open(&mut first, 201..251), HashMap::from([(1, 50)]));
        // The flows of `a` return: it has twice as many as `b` again.
        first.write("import_flows", &BASE64_STANDARD.encode(&part)).unwrap();
        assert_eq!(open(&mut first, 301..351), HashMap::from([(2, 50)]));
        // Idle flows end, too.
        first.advance_time(Duration::from_secs(100_000));
        first.run();
        assert_eq!(open(&mut first, 401..501), HashMap::from([(1, 50), (2, 50)]));
    }

    /// Begins to follow; the number of the first event.
    fn follow(bench: &mut Bench) -> u64 {
        let begin: Value = serde_json::from_str(&bench.read("flow_events", "now").unwrap()).unwrap();
        begin["next"].as_u64().unwrap()
    }
    fn events(bench: &mut Bench, since: u64) -> Vec<Value> {
        let text = bench.read("flow_events", &format!("0:{since}")).unwrap();
        let recent: Value = serde_json::from_str(&text).unwrap();
        recent["events"].as_array().unwrap().clone()
    }

    #[test]
    fn a_flow_that_makes_room_and_comes_again_in_one_part_ends_before_it_comes() {
        let mut first = bench("");
        open(&mut first, 1..61);
        let part = parts(&mut first).swap_remove(0);
        let end = 11;
        let mut twice = part[..part.len() - end].to_vec();
        twice.extend(&part[8..part.len() - end]);
        write_item(&StreamItem::End(120), &mut twice);
        let mut second = bench(", FLOWS 50");
        let mut next = follow(&mut second);
        second.write("import_flows", &BASE64_STANDARD.encode(&twice)).unwrap();
        let mut known = HashSet::new();
        loop {
            let events = events(&mut second, next);
            for event in &events {
                let client = event["sport"].as_u64().unwrap();
                match event["event"].as_str().unwrap() {
                    "import" => assert!(known.insert(client), "{client} came already"),
                    _ => assert!(known.remove(&client), "{client} has not come yet"),
                }
            }
            if events.is_empty() {
                break;
            }
            next += events.len() as u64;
        }
        assert_eq!(second.read("flows", "").unwrap(), known.len().to_string());
        assert!(count(&mut second, "new") > 60);
    }

    #[test]
    fn what_happens_to_flows_is_recorded_while_a_client_follows() {
        let mut bench = bench("");
        open(&mut bench, 1..11);
        let idle = bench.read("flow_events", "").unwrap();
        assert!(idle.contains("\"next\":0"), "no follower yet: {idle}");
        let first = follow(&mut bench);
        open(&mut bench, 21..22);
        bench.push(0, ip4().src("198.51.100.7").dst("192.0.2.1").tcp(21, 80).flags(TcpFlags::FIN).bytes());
        bench.next_sent(0).unwrap();
        let recent = events(&mut bench, first);
        let kinds: Vec<_> = recent
            .iter()
            .map(|event| (event["event"].as_str().unwrap(), event["state"].as_str().unwrap()))
            .collect();
        assert_eq!(kinds, [("insert", "opening"), ("proven", "established"), ("state", "fin")]);
        let old = recent[0]["member"].as_str().unwrap().to_string();
        bench.write("remove_member", &old).unwrap();
        bench.push(0, ip4().src("198.51.100.7").dst("192.0.2.1").tcp(21, 80).flags(TcpFlags::ACK).bytes());
        bench.next_sent(0).unwrap();
        bench.write("flush_flows", "all").unwrap();
        bench.run();
        let recent = events(&mut bench, first + 3);
        assert_eq!((&recent[0]["event"], &recent[0]["from"]), (&"moved".into(), &old.into()));
        assert_eq!(
            (&recent[1]["event"], &recent[1]["reason"], recent.len()),
            (&"end".into(), &"removed".into(), 12)
        );
        for wrong in ["x", "0", "0:x", ":", "0:99999999999999999999"] {
            assert!(bench.read("flow_events", wrong).is_err(), "{wrong}");
        }
    }
}
