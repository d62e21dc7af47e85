//! The owners of imported flows by name: machines that see packets of them.
use super::balancer_worker::FlowBalancer;
use artery_engine::HandlerError;
use artery_flow::{OwnerId, Tick};
use std::collections::HashMap;
use std::time::Duration;

/// Most owners that a worker knows. Machines that start again are new ones.
const MOST: u16 = 4096;
/// Longest time that an owner can be said to live, or a confirmation can be ago.
const MOST_SECONDS: u32 = 24 * 3600;
/// Most bytes of a name.
const LONGEST: usize = 100;

#[derive(Debug, Default)]
pub(super) struct FlowOwners(HashMap<Box<str>, OwnerId>);

impl FlowOwners {
    /// The owner of a name, if flows of it were ever imported.
    fn find(&self, name: &str) -> Result<Option<OwnerId>, HandlerError> {
        check_name(name)?;
        Ok(self.0.get(name).copied())
    }

    /// The name of an owner; empty for `OwnerId::NONE`.
    pub(super) fn name(&self, owner: OwnerId) -> &str {
        self.0.iter().find(|(_, known)| **known == owner).map_or("", |(name, _)| name)
    }

    /// The owner of a name; `OwnerId::NONE` if it is empty.
    pub(super) fn find_or_add(&mut self, name: &str) -> Result<OwnerId, HandlerError> {
        if name.is_empty() {
            return Ok(OwnerId::NONE);
        }
        if let Some(known) = self.0.get(name) {
            return Ok(*known);
        }
        check_name(name)?;
        // Copies of an owner without a number are treated like those from a file.
        let number = self.0.len() as u16 + 1;
        if number > MOST {
            return Ok(OwnerId::NONE);
        }
        self.0.insert(name.into(), OwnerId::new(number));
        Ok(OwnerId::new(number))
    }
}

fn check_name(name: &str) -> Result<(), HandlerError> {
    if name.len() > LONGEST || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(HandlerError::refused(format!("'{name}' is not a name of an owner of flows")));
    }
    Ok(())
}

/// `OWNER SECONDS [CONFIRMED]`: an owner of copies lives for so many seconds more, and has ended the flows
/// that no import confirmed in the last CONFIRMED seconds.
pub(super) fn keep_copies(b: &mut FlowBalancer, text: &str, now: Duration) -> Result<(), HandlerError> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let seconds = |word: &str| word.parse::<u32>().ok().filter(|seconds| *seconds <= MOST_SECONDS);
    let parsed = match words[..] {
        [owner, lease] => Some((owner, seconds(lease), Some(MOST_SECONDS))),
        [owner, lease, confirmed] => Some((owner, seconds(lease), seconds(confirmed))),
        _ => None,
    };
    let Some((name, Some(lease), Some(confirmed))) = parsed else {
        return Err(HandlerError::refused(format!(
            "'{text}' is not OWNER SECONDS [CONFIRMED], with seconds up to {MOST_SECONDS}"
        )));
    };
    // An owner without copies has nothing to keep.
    let Some(owner) = b.exchange.owners.find(name)? else { return Ok(()) };
    let until = Tick::from_time(now + Duration::from_secs(lease.into()));
    // The clock of a router begins anywhere, also at zero.
    let confirmed = Tick::from_time(now).earlier(Duration::from_secs(confirmed.into()));
    b.v4.keep_copies(owner, until, confirmed);
    b.v6.keep_copies(owner, until, confirmed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::flow_balancer::CLASS;
    use artery_engine::Bench;
    use artery_flow::stream::{AnyKey, StreamItem, StreamReader, write_header, write_item};
    use artery_wire::build::ip4;
    use artery_wire::{IpProtocol, TcpFlags};
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn bench() -> Bench {
        let config = "SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2";
        Bench::setup(&CLASS, config).outputs(2).build().unwrap_or_else(|errors| panic!("{errors:?}"))
    }

    fn packet(bench: &mut Bench, client: u16, flags: TcpFlags) {
        bench.push(0, ip4().src("198.51.100.7").dst("192.0.2.1").tcp(client, 80).flags(flags).bytes());
        bench.next_sent(0).unwrap();
    }

    fn open(bench: &mut Bench, clients: std::ops::Range<u16>) {
        for client in clients {
            [TcpFlags::SYN, TcpFlags::ACK].into_iter().for_each(|flags| packet(bench, client, flags));
        }
    }

    fn items(bench: &mut Bench) -> Vec<u8> {
        let text = bench.read("flows_part", "").unwrap();
        BASE64_STANDARD.decode(text.trim_end().split(' ').nth(2).unwrap()).unwrap()
    }

    /// Whether each client's flow is known from an import only, and its epoch.
    fn flows(bench: &mut Bench) -> BTreeMap<u16, (bool, u16)> {
        let (items, mut flows) = (items(bench), BTreeMap::new());
        let mut reader = StreamReader::of_items(&items);
        while reader.bytes_left() > 0 {
            if let Some(StreamItem::Flow(flow)) = reader.next_item().unwrap() {
                flows.insert(flow.key.endpoints()[0].1, (flow.is_imported, flow.epoch));
            }
        }
        flows
    }

    fn import(bench: &mut Bench, owner: &str, items: &[u8], ended: &[(u16, u16)]) {
        let mut stream = Vec::new();
        write_header(&mut stream);
        write_item(&StreamItem::Owner(owner), &mut stream);
        stream.extend(items);
        let mut reader = StreamReader::of_items(items);
        let mut count = 0;
        while reader.bytes_left() > 0 {
            count += u64::from(matches!(reader.next_item().unwrap(), Some(StreamItem::Flow(_))));
        }
        for (client, epoch) in ended {
            let ends = [("198.51.100.7".parse().unwrap(), *client), ("192.0.2.1".parse().unwrap(), 80)];
            let key = AnyKey::new(ends, IpProtocol::TCP).unwrap();
            write_item(&StreamItem::Ended(key, *epoch), &mut stream);
        }
        write_item(&StreamItem::End(count), &mut stream);
        bench.write("import_flows", &BASE64_STANDARD.encode(&stream)).unwrap();
    }

    #[test]
    fn a_flow_says_whether_it_was_imported_and_the_first_packet_makes_it_this_machines() {
        let (mut first, mut second) = (bench(), bench());
        open(&mut first, 1..4);
        assert!(flows(&mut first).values().all(|flow| *flow == (false, 0)));
        let sent = items(&mut first);
        import(&mut second, "m1", &sent, &[]);
        assert!(flows(&mut second).values().all(|flow| *flow == (true, 0)));
        packet(&mut second, 2, TcpFlags::ACK);
        assert_eq!(flows(&mut second)[&2], (false, 1));
        // The owner before learns of it, and what it says has no weight any more.
        import(&mut second, "m1", &sent, &[(2, 0)]);
        assert_eq!(flows(&mut second)[&2], (false, 1));
        let sent = items(&mut second);
        import(&mut first, "m2", &sent, &[]);
        assert_eq!(flows(&mut first), BTreeMap::from([(1, (false, 0)), (2, (true, 1)), (3, (false, 0))]));
        // A file does not say who owns a flow.
        import(&mut second, "", &sent, &[(1, 0), (3, 0)]);
        assert_eq!(flows(&mut second)[&1], (true, 0));
    }

    /// Exported exceptions by client, and the owner whose copies they are.
    fn owners_of_exceptions(bench: &mut Bench) -> BTreeMap<u16, String> {
        let text = bench.read("exceptions_part", "").unwrap();
        let items = BASE64_STANDARD.decode(text.trim_end().split(' ').nth(2).unwrap()).unwrap();
        let (mut reader, mut owner, mut flows) =
            (StreamReader::of_items(&items), String::new(), BTreeMap::new());
        while reader.bytes_left() > 0 {
            match reader.next_item().unwrap() {
                Some(StreamItem::Owner(name)) => owner = name.to_string(),
                Some(StreamItem::Flow(flow)) => drop(flows.insert(flow.key.endpoints()[0].1, owner.clone())),
                _ => {}
            }
        }
        flows
    }

    #[test]
    fn exported_exceptions_say_whose_copies_they_are() {
        let (mut first, mut second, mut third) = (bench(), bench(), bench());
        open(&mut first, 1..4);
        open(&mut second, 5..7);
        let sent = [items(&mut first), items(&mut second)];
        import(&mut third, "m1@1", &sent[0], &[]);
        import(&mut third, "m2@1", &sent[1], &[]);
        packet(&mut third, 2, TcpFlags::ACK);
        for member in ["a", "b"] {
            third.write("weight", &format!("{member} 0")).unwrap();
        }
        third.write("add_member", "c 10.0.0.3").unwrap();
        let owner = |name: &str| name.to_string();
        let expected =
            [(1, owner("m1@1")), (2, owner("")), (3, owner("m1@1")), (5, owner("m2@1")), (6, owner("m2@1"))];
        assert_eq!(owners_of_exceptions(&mut third), BTreeMap::from(expected));
    }

    #[test]
    fn an_end_removes_copies_of_its_owner_alone() {
        let (mut first, mut second) = (bench(), bench());
        open(&mut first, 1..5);
        import(&mut second, "m1", &items(&mut first), &[]);
        packet(&mut second, 4, TcpFlags::ACK);
        import(&mut second, "m3", &[], &[(1, 9)]);
        import(&mut second, "m1", &[], &[(2, 0), (4, 0), (77, 0)]);
        let left: Vec<u16> = flows(&mut second).into_keys().collect();
        assert_eq!(left, [1, 3, 4]);
        assert!(second.read("exchange", "").unwrap().contains("\"ended\":1"));
    }

    #[test]
    fn copies_stay_while_their_owner_lives_and_go_when_it_no_longer_has_them() {
        let (mut first, mut second) = (bench(), bench());
        open(&mut first, 1..3);
        for client in 1..3 {
            packet(&mut first, client, TcpFlags::RST);
        }
        let sent = items(&mut first);
        import(&mut second, "m1", &sent, &[]);
        let pass = |bench: &mut Bench, seconds| {
            for _ in 0..seconds {
                bench.advance_time(Duration::from_secs(1));
                bench.run();
            }
        };
        for _ in 0..6 {
            second.write("keep_copies", "m1 10").unwrap();
            pass(&mut second, 5);
        }
        assert_eq!(flows(&mut second).len(), 2, "a closed connection stays for 10 s");
        open(&mut second, 9..10);
        import(&mut second, "m1", &sent, &[]);
        second.write("keep_copies", "m1 10 3").unwrap();
        pass(&mut second, 1);
        assert_eq!(flows(&mut second).len(), 3);
        pass(&mut second, 4);
        second.write("keep_copies", "m1 10 3").unwrap();
        pass(&mut second, 3);
        assert_eq!(flows(&mut second), BTreeMap::from([(9, (false, 0))]));
    }

    #[test]
    fn what_is_no_owner_and_no_time_is_refused() {
        let mut bench = bench();
        let long = format!("{} 1", "x".repeat(101));
        for text in ["", "m1", "m1 x", "m1 -1", "m1 1 x", "m1 1 1 1", "m1 86401", "\u{fc} 1", &long] {
            assert!(bench.write("keep_copies", text).is_err(), "{text}");
        }
    }
}
