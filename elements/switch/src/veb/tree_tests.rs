//! Switches that take part in a spanning tree, each on a bench, with cables between their ports.
use super::tests::CLASS;
use super::*;
use artery_engine::{Bench, DropReason};
use artery_wire::Bpdu;
use artery_wire::build::{ether, ip4};

const A: &str = "02:00:00:00:00:0a";
const B: &str = "02:00:00:00:00:0b";
const ALL: &str = "ff:ff:ff:ff:ff:ff";

/// An end of a cable: a bench, and a port of its switch.
type End = (usize, usize);

struct Net {
    benches: Vec<Bench>,
    cables: Vec<(End, End)>,
    /// Frames of hosts that went by a cable.
    carried: usize,
}

/// The `n`th switch, of ports em0 to em2.
fn switch(n: usize, words: &str) -> Bench {
    let arguments = format!("PORT em0, PORT em1, PORT em2, ETHER 02:00:00:00:01:0{n}, IFCONFIG \"{words}\"");
    let mut bench = Bench::setup(&CLASS, &arguments).inputs(3).outputs(3).build().unwrap();
    bench.run();
    bench
}

impl Net {
    fn new(count: usize, words: &str, cables: &[(End, End)]) -> Net {
        let benches = (0..count).map(|n| switch(n, words)).collect();
        Net { benches, cables: cables.to_vec(), carried: 0 }
    }

    /// A ring of three by their first two ports; behind the third of each is a host.
    fn ring() -> Net {
        Net::new(
            3,
            "stp em0 stp em1 stp em2 edge em2",
            &[((0, 1), (1, 0)), ((1, 1), (2, 0)), ((2, 1), (0, 0))],
        )
    }

    /// Carries frames over cables until none is left.
    fn carry(&mut self) {
        for _ in 0..100 {
            let mut moved = 0;
            for (one, other) in self.cables.clone() {
                for (from, to) in [(one, other), (other, one)] {
                    let frames = self.benches[from.0].drain_sent(from.1);
                    moved += frames.len();
                    for frame in frames {
                        self.carried += usize::from(frame.data()[..6] != Bpdu::GROUP.0);
                        self.benches[to.0].push(to.1, frame.data());
                    }
                }
            }
            if moved == 0 {
                return;
            }
        }
        panic!("frames go in circles");
    }

    fn pass(&mut self, time: Duration) {
        let step = Duration::from_millis(1);
        let mut passed = Duration::ZERO;
        while passed < time {
            self.benches.iter_mut().for_each(|bench| bench.advance_time(step));
            self.carry();
            passed += step;
        }
    }

    fn ifconfig(&mut self, at: usize, words: &str) {
        self.benches[at].write("ifconfig", words).unwrap();
        self.carry();
    }

    fn show(&mut self, at: usize) -> String {
        self.benches[at].read("show", "").unwrap()
    }

    /// Ports that block frames of hosts.
    fn held(&mut self) -> Vec<String> {
        let mut held = Vec::new();
        for at in 0..self.benches.len() {
            let shown = self.show(at);
            held.extend(
                shown
                    .lines()
                    .filter(|line| line.contains(" discarding "))
                    .map(|line| format!("{at}:{}", line.trim())),
            );
        }
        held
    }

    /// Sends a frame from the host of a switch, and returns the switches whose hosts received it.
    fn send(&mut self, from: usize, bytes: &[u8]) -> Vec<usize> {
        self.benches[from].push(2, bytes);
        self.carry();
        let got = (0..self.benches.len()).flat_map(|at| {
            // BPDUs must not reach any host.
            let frames = self.benches[at].drain_sent(2);
            frames.iter().filter(|frame| frame.data() == bytes).map(|_| at).collect::<Vec<_>>()
        });
        got.collect()
    }
}

fn frame(dst: &str, src: &str) -> Vec<u8> {
    ether(dst, src).ip4(ip4().udp(1, 2)).bytes()
}

#[test]
fn a_ring_of_three_converges_within_a_second_with_one_port_held_back_and_no_circle() {
    let mut net = Net::ring();
    net.pass(Duration::from_millis(900));
    let held = net.held();
    assert_eq!(held.len(), 1, "{held:?}");
    assert!(held[0].contains("role alternate"), "{held:?}");
    for from in 0..3 {
        let others: Vec<usize> = (0..3).filter(|at| *at != from).collect();
        assert_eq!(net.send(from, &frame(ALL, A)), others, "each once");
    }
}

#[test]
fn frames_of_hosts_never_circle_while_the_tree_grows() {
    let mut net = Net::ring();
    for _ in 0..100 {
        net.pass(Duration::from_millis(5));
        (0..3).for_each(|from| drop(net.send(from, &frame(ALL, A))));
    }
    assert!(net.carried <= 100 * 3 * 4, "{}", net.carried);
}

#[test]
fn a_cut_is_healed_and_addresses_are_forgotten() {
    let mut net = Net::ring();
    net.pass(Duration::from_secs(1));
    assert_eq!(net.send(1, &frame(ALL, B)), [0, 2]);
    assert_eq!(net.send(0, &frame(B, A)), [1]);
    // The cable on the direct path between the two fails.
    net.cables.remove(0);
    for (at, port) in [(0, 1), (1, 0)] {
        net.ifconfig(at, &format!("-stp em{port} -learn em{port}"));
    }
    net.pass(Duration::from_secs(1));
    assert_eq!(net.held(), Vec::<String>::new());
    assert_eq!(net.send(0, &frame(B, A)), [1, 2], "its entry was flushed");
    assert_eq!(net.send(1, &frame(A, B)), [0], "by the other way");
    assert_eq!(net.send(0, &frame(B, A)), [1]);
}

#[test]
fn messages_of_bridges_are_heard_where_the_tree_is_spoken_and_nowhere_passed_on() {
    let mut bench = switch(0, "stp em0");
    let proposal = bench.next_sent(0).unwrap().data().to_vec();
    assert_eq!(proposal[..6], Bpdu::GROUP.0);
    assert_eq!(proposal[6..12], [2, 0, 0, 0, 1, 0]);
    bench.expect_nothing_more();
    let mut other = switch(1, "stp em0");
    let said = other.next_sent(0).unwrap().data().to_vec();
    bench.push(1, &said);
    bench.expect_dropped(DropReason::ReservedAddress, 1);
    bench.push(0, &said);
    bench.expect_dropped(DropReason::Consumed, 1);
    (0..said.len()).for_each(|len| bench.push(0, &said[..len]));
    bench.write("ifconfig", "link0").unwrap();
    bench.drain_sent(0);
    bench.push(1, &said);
    assert_eq!(bench.drain_sent(2).len(), 1, "where it isn't spoken, others may speak through");
    bench.drain_sent(0);
}

#[test]
fn ports_that_are_held_back_neither_take_nor_give_frames_of_known_stations() {
    let mut bench = switch(0, "");
    for (port, source) in [(0, A), (1, B)] {
        bench.push(port, frame(ALL, source));
    }
    (0..3).for_each(|output| drop(bench.drain_sent(output)));
    bench.push(0, frame(B, A));
    bench.expect(1, frame(B, A));
    bench.write("ifconfig", "stp em1").unwrap();
    bench.drain_sent(1);
    bench.push(0, frame(B, A));
    bench.push(1, frame(A, B));
    bench.expect_dropped(DropReason::PortBlocked, 2);
    bench.expect_nothing_more();
    bench.write("ifconfig", "edge em1").unwrap();
    bench.drain_sent(1);
    bench.push(0, frame(B, A));
    bench.expect(1, frame(B, A));
}

#[test]
fn a_port_learns_before_it_forwards() {
    let mut bench = switch(0, "proto stp maxage 6 fwddelay 4 -autoedge em0 stp em0");
    bench.advance_time(Duration::from_secs(7));
    bench.drain_sent(0);
    bench.push(0, frame(ALL, A));
    bench.expect_nothing_more();
    assert_eq!(bench.read("addr", "").unwrap(), format!("{A} em0 0 flags=0<>\n"));
    assert!(bench.read("show", "").unwrap().contains(" learning role designated\n"));
    bench.advance_time(Duration::from_secs(4));
    bench.drain_sent(0);
    bench.push(0, frame(ALL, A));
    assert_eq!((bench.drain_sent(1).len(), bench.drain_sent(2).len()), (1, 1));
}

#[test]
fn it_shows_what_ifconfig_shows_and_gives_the_commands_for_it() {
    let words = "spanpriority 4096 stp em0 ifcost em0 77 ifpriority em0 16 -ptp em0 stp em1 edge em1 \
        rootguard em1 protected em1 3 autoedge em2 -autoedge em2 bpdufilter em2 hellotime 1";
    let mut bench = switch(3, words);
    let shown = bench.read("show", "").unwrap();
    let expected = "\tpriority 4096 hellotime 1 fwddelay 15 maxage 20 holdcnt 6 proto rstp\n\
                    \tdesignated: id 02:00:00:00:01:03 priority 4096\n\
                    \tem0 flags=2b<LEARNING,DISCOVER,STP,AUTOEDGE>\n\
                    \t\tport 1 ifpriority 16 ifcost 77 discarding role designated\n\
                    \tem1 flags=20bb<LEARNING,DISCOVER,STP,EDGE,AUTOEDGE,AUTOPTP,ROOTGUARD>\n\
                    \t\tport 2 ifpriority 128 ifcost 20000 protected 3 forwarding role designated\n\
                    \tem2 flags=3<LEARNING,DISCOVER>\n\
                    \t\tport 3 ifpriority 0 ifcost 0\n";
    let rest = shown.split_once('\n').unwrap().1;
    assert!(rest.starts_with(expected), "{shown}");
    let commands = bench.read("config", "").unwrap();
    for line in [
        "proto rstp",
        "spanpriority 4096",
        "ifcost em0 77",
        "-ptp em0",
        "stp em1",
        "edge em1",
        "-autoedge em2",
        "bpdufilter em2",
    ] {
        assert!(commands.lines().any(|one| one == line), "{line}: {commands}");
    }
    let ports = "PORT em0 detached, PORT em1 detached, PORT em2 detached, ETHER 02:00:00:00:01:03";
    let mut other = Bench::setup(&CLASS, ports).inputs(3).outputs(3).build().unwrap();
    other.run();
    commands
        .lines()
        .for_each(|line| other.write("ifconfig", line).unwrap_or_else(|error| panic!("{line}: {error}")));
    assert_eq!(other.read("show", "").unwrap(), shown);
    assert_eq!(other.read("config", "").unwrap(), commands);
}

#[test]
fn a_switch_that_is_down_says_nothing_and_begins_anew() {
    let mut bench = switch(0, "stp em0 edge em0");
    bench.write("ifconfig", "down").unwrap();
    bench.advance_time(Duration::from_secs(10));
    bench.drain_sent(0);
    bench.advance_time(Duration::from_secs(10));
    bench.expect_nothing_more();
    assert!(bench.read("show", "").unwrap().contains(" disabled role disabled\n"));
    bench.write("ifconfig", "up").unwrap();
    assert_eq!(bench.drain_sent(0).len(), 1);
    assert!(bench.read("show", "").unwrap().contains(" forwarding role designated\n"));
    bench.write("ifconfig", "del em0 add em0").unwrap();
    assert!(!bench.read("show", "").unwrap().contains(" role "));
}

#[test]
fn one_that_takes_the_place_of_another_goes_on_where_nothing_has_changed() {
    let arguments = |words: &str| format!("PORT em0, PORT em1, IFCONFIG \"{words}\"");
    for (words, goes_on) in [("-autoedge em0 stp em0", true), ("-autoedge em0 stp em0 ifcost em0 5", false)] {
        let setup = Bench::setup(&CLASS, &arguments("-autoedge em0 stp em0")).inputs(2).outputs(2);
        let mut old = setup.build().unwrap();
        old.advance_time(Duration::from_secs(40));
        let state =
            |bench: &mut Bench| bench.read("show", "").unwrap().contains(" forwarding role designated\n");
        assert!(state(&mut old));
        let setup = Bench::setup(&CLASS, &arguments(words)).inputs(2).outputs(2).sharing_with(&old);
        let mut new = setup.as_replacement().build().unwrap();
        new.take_state(&mut old);
        new.run();
        assert_eq!(state(&mut new), goes_on);
        new.drain_sent(0);
        new.push(1, frame(ALL, A));
        assert_eq!(new.drain_sent(0).len(), usize::from(goes_on));
    }
}

#[test]
fn what_the_tree_refuses_is_refused_with_its_bounds() {
    let mut bench = switch(0, "proto stp");
    for (words, said) in [
        ("ifcost em0 70000", "cost 70000 is not 1 to"),
        ("stp em9", "em9 is not connected"),
        ("spanpriority 5", "5"),
    ] {
        let refusal = bench.write("ifconfig", words).unwrap_err().to_string();
        assert!(refusal.contains(said), "{words}: {refusal}");
    }
    let refusal = Bench::config_error(&CLASS, "PORT em0 -stp");
    assert!(refusal.contains("IFCONFIG takes it, as in IFCONFIG \"-stp em0\""), "{refusal}");
    let refusal = Bench::config_error(&CLASS, "ETHER 01:00:00:00:00:01");
    assert!(refusal.contains("is not the MAC address of a host"), "{refusal}");
}
