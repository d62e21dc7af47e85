use super::ether_text::format_dashed;
use crate::basic::hub::flood_packet;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Packet, Read,
    Show, Time, Write, parse_value,
};
use artery_wire::{EtherAddr, Ethernet};
use std::any::Any;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "EtherSwitch",
    group: "ether",
    summary: "switches Ethernet frames among its ports",
    manual: "
Input N and output N together are a port. Learns at which port each source address is, and sends a frame for
an address that it knows by that port; one that came by the very port is dropped. Frames for groups and for
addresses that are not known leave, or copies of them, by every port but the one they came by. What was
learned is forgotten when nothing was heard from an address for TIMEOUT seconds, by packets' timestamps, or by
the clock where they have none. With a TIMEOUT of 0 nothing is learned, and all frames are copied. Frames
shorter than an Ethernet header are dropped.

At most 8192 addresses are known at a time. While all are in use further ones are not learned, and `unlearned`
counts their frames.

It is for configurations written for Click. Veb is a switch with VLANs, rules, spanning trees, and the work of
all workers.",
    example: "Idle -> s :: EtherSwitch -> Discard;\nIdle -> [1]s[1] -> Discard;",
    ports: "2-/=",
    processing: "h/h",
    flow: "#/[^#]",
    args: &[Arg::keyword("TIMEOUT", "seconds", "300", "how long an address is known; 0 to learn none")],
    handlers: &[
        Handler::read("table", "a line `ADDRESS PORT` for each address", &Read(EtherSwitch::table_text)),
        Handler::read("timeout", "TIMEOUT", &Show(|s: &mut EtherSwitch| s.timeout.as_secs_f64()))
            .and_write(&Write(EtherSwitch::set_timeout)),
        Handler::read(
            "unlearned",
            "frames whose source found no room in the table",
            &Show(|s: &mut EtherSwitch| s.unlearned),
        ),
    ],
    build: |args| Ok(Box::new(EtherSwitch::new(args)?)),
    ..Class::DEFAULT
};

/// Most entries of the MAC table.
const MAX_ENTRIES: usize = 8192;
/// Shortest time between two searches for expired entries when the table is full.
const SWEEP: Duration = Duration::from_secs(1);

/// The port that received frames from an address, and when.
struct LearnedAddress {
    port: usize,
    last_seen: Time,
}

struct EtherSwitch {
    /// The MAC table, allocated for its maximum size at the start.
    entries: HashMap<EtherAddr, LearnedAddress>,
    timeout: Duration,
    unlearned: u64,
    swept: Time,
}

/// The output for a frame.
enum SwitchTarget {
    Port(usize),
    All,
    Nowhere,
}

impl EtherSwitch {
    fn new(args: &Args<'_>) -> Result<EtherSwitch, ArgError> {
        // Twice the capacity, so that removed entries are cleared in place and the table never grows.
        let stations = HashMap::with_capacity(2 * MAX_ENTRIES);
        Ok(EtherSwitch { entries: stations, timeout: args.read("TIMEOUT")?, unlearned: 0, swept: Time::ZERO })
    }

    fn table_text(&mut self, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        let mut stations: Vec<_> = self.entries.iter().collect();
        stations.sort_by_key(|(address, _)| address.octets());
        let mut text = String::new();
        for (address, station) in stations {
            // Writing to a string can't fail.
            let _ = writeln!(text, "{} {}", format_dashed(*address), station.port);
        }
        Ok(text)
    }
    fn set_timeout(&mut self, text: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        self.timeout = parse_value(text)
            .map_err(|_| HandlerError::refused("expected timeout (a time such as 300, 0.5 or 20ms)"))?;
        Ok(())
    }

    /// Learns the source address, and looks up the output.
    fn lookup_target(&mut self, input: usize, frame: &Ethernet<&[u8]>, time: Time) -> SwitchTarget {
        if self.timeout.is_zero() {
            return SwitchTarget::All;
        }
        self.learn_source(frame.src(), input, time);
        let dst = frame.dst();
        match self.entries.get(&dst).filter(|_| !dst.is_group()) {
            None => SwitchTarget::All,
            Some(station) if self.is_over(station, time) => {
                self.entries.remove(&dst);
                SwitchTarget::All
            }
            Some(station) if station.port == input => SwitchTarget::Nowhere,
            Some(station) => SwitchTarget::Port(station.port),
        }
    }
    fn is_over(&self, station: &LearnedAddress, time: Time) -> bool {
        time >= station.last_seen + self.timeout
    }
    fn learn_source(&mut self, address: EtherAddr, port: usize, time: Time) {
        // A group address is never a valid source.
        if address.is_group() {
            return;
        }
        if let Some(station) = self.entries.get_mut(&address) {
            *station = LearnedAddress { port, last_seen: time };
            return;
        }
        if self.entries.len() >= MAX_ENTRIES {
            self.expire_entries(time);
        }
        if self.entries.len() < MAX_ENTRIES {
            self.entries.insert(address, LearnedAddress { port, last_seen: time });
        } else {
            self.unlearned += 1;
        }
    }
    /// Removes expired entries, unless that was done just before: it scans the whole table.
    fn expire_entries(&mut self, time: Time) {
        if time < self.swept + SWEEP && time >= self.swept {
            return;
        }
        self.swept = time;
        let timeout = self.timeout;
        self.entries.retain(|_, station| time < station.last_seen + timeout);
    }

    fn switch_frame(&mut self, input: usize, packet: Packet, cx: &mut Context<'_>) {
        let time = if packet.timestamp() == Time::ZERO { cx.now() } else { packet.timestamp() };
        let Ok(frame) = Ethernet::new(packet.data()) else {
            return cx.discard(packet, DropReason::TooShort);
        };
        match self.lookup_target(input, &frame, time) {
            SwitchTarget::Port(port) => cx.send(port, packet),
            SwitchTarget::All => flood_packet(input, packet, cx),
            SwitchTarget::Nowhere => cx.discard(packet, DropReason::SamePort),
        }
    }
}

impl Element for EtherSwitch {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.drain().for_each(|packet| self.switch_frame(input, packet, cx));
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<EtherSwitch>() else { return };
        let ports = cx.outputs();
        self.entries.extend(old.entries.drain().filter(|(_, station)| station.port < ports));
        self.unlearned = old.unlearned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::EtherType;
    use artery_wire::build::ether;

    const A: &str = "02:00:00:00:00:0a";
    const B: &str = "02:00:00:00:00:0b";
    const ALL: &str = "ff:ff:ff:ff:ff:ff";

    fn switch(config: &str) -> Bench {
        Bench::setup(&CLASS, config).inputs(3).outputs(3).build().unwrap()
    }
    fn frame(src: &str, dst: &str) -> Vec<u8> {
        ether(dst, src).raw(EtherType(0x88b5), b"x").bytes()
    }
    /// The outputs by which a frame leaves.
    fn outputs(bench: &mut Bench, input: usize, src: &str, dst: &str) -> Vec<usize> {
        bench.push(input, frame(src, dst));
        (0..3).filter(|output| !bench.drain_sent(*output).is_empty()).collect()
    }

    #[test]
    fn frames_for_unknown_addresses_and_groups_are_copied_to_all_other_ports() {
        let mut bench = switch("");
        assert_eq!(outputs(&mut bench, 1, A, B), [0, 2]);
        assert_eq!(outputs(&mut bench, 0, B, ALL), [1, 2]);
    }

    #[test]
    fn a_station_that_was_heard_gets_frames_by_its_port_only() {
        let mut bench = switch("");
        outputs(&mut bench, 1, A, ALL);
        assert_eq!(outputs(&mut bench, 2, B, A), [1]);
        assert_eq!(bench.read("table", "").unwrap(), "02-00-00-00-00-0A 1\n02-00-00-00-00-0B 2\n");
        assert!(outputs(&mut bench, 1, B, A).is_empty(), "both are at one port");
        bench.expect_dropped(DropReason::SamePort, 1);
        outputs(&mut bench, 0, A, ALL);
        assert_eq!(outputs(&mut bench, 2, B, A), [0], "it has moved");
    }

    #[test]
    fn a_station_that_is_silent_is_forgotten() {
        let mut bench = switch("TIMEOUT 10");
        outputs(&mut bench, 1, A, ALL);
        bench.advance_time(Duration::from_secs(9));
        assert_eq!(outputs(&mut bench, 2, B, A), [1]);
        bench.advance_time(Duration::from_secs(1));
        assert_eq!(outputs(&mut bench, 2, B, A), [0, 1]);
        assert_eq!(bench.read("table", "").unwrap(), "02-00-00-00-00-0B 2\n");
    }

    #[test]
    fn without_a_timeout_it_is_a_hub() {
        let mut bench = switch("TIMEOUT 0");
        outputs(&mut bench, 1, A, ALL);
        assert_eq!(outputs(&mut bench, 2, B, A), [0, 1]);
        bench.write("timeout", "300").unwrap();
        assert_eq!(bench.read("timeout", "").unwrap(), "300");
        outputs(&mut bench, 1, A, ALL);
        assert_eq!(outputs(&mut bench, 2, B, A), [1]);
        let refusal = bench.write("timeout", "never").unwrap_err().to_string();
        assert_eq!(refusal, "expected timeout (a time such as 300, 0.5 or 20ms)");
        for (given, told) in [("0.5", "0.5"), ("20ms", "0.02"), ("1h", "3600")] {
            bench.write("timeout", given).unwrap();
            assert_eq!(bench.read("timeout", "").unwrap(), told);
        }
    }

    #[test]
    fn a_full_table_learns_no_more_until_something_in_it_is_over() {
        let mut bench = switch("TIMEOUT 10");
        for n in 0..MAX_ENTRIES as u32 + 2 {
            let [_, _, high, low] = n.to_be_bytes();
            outputs(&mut bench, 1, &format!("02:00:00:01:{high:02x}:{low:02x}"), ALL);
        }
        assert_eq!(bench.read("table", "").unwrap().lines().count(), MAX_ENTRIES);
        assert_eq!(bench.read("unlearned", "").unwrap(), "2");
        bench.advance_time(Duration::from_secs(10));
        outputs(&mut bench, 1, A, ALL);
        assert_eq!(bench.read("table", "").unwrap(), "02-00-00-00-00-0A 1\n");
    }

    #[test]
    fn an_heir_knows_what_was_learned() {
        let mut old = switch("");
        outputs(&mut old, 1, A, ALL);
        let mut new = switch("");
        new.take_state(&mut old);
        assert_eq!(outputs(&mut new, 2, B, A), [1]);
    }

    #[test]
    fn short_frames_are_dropped() {
        let mut bench = switch("");
        bench.push(0, [0; 13]);
        bench.expect_dropped(DropReason::TooShort, 1);
    }
}
