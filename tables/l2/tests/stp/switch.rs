//! A tree configured in the words of ifconfig(8), and a switch whose ports it blocks and unblocks.

use super::net::{millis, seconds};
use artery_l2::command::parse;
use artery_l2::stp::{Link, Outgoing, PortState, Role as TreeRole, StpError, Tree};
use artery_l2::{Config, MacKey, Port, Question, Role, Switch};
use artery_rcu::{Domain, Reader};
use artery_wire::{Bpdu, EtherAddr, EtherType};
use std::time::Duration;

struct Lab {
    switch: Switch,
    reader: Reader,
    tree: Tree,
    now: Duration,
    sent: Outgoing,
}

fn address(bridge: u8, port: u8) -> EtherAddr {
    EtherAddr([2, 0, 0, bridge, 0, port])
}

impl Lab {
    /// The `bridge`th switch, of three ports whose links are up.
    fn new(bridge: u8) -> Lab {
        let (domain, mut config) = (Domain::new(), Config::new("veb0"));
        (0..3).for_each(|at| config.connect_port(Port::new(format!("p{at}"), Role::Member)).unwrap());
        let mut tree = Tree::new(&[0, 1, 2].map(|port| address(bridge, port))).unwrap();
        (0..3).for_each(|at| tree.set_link(at, Some(Link::GIGABIT), seconds(10)).unwrap());
        let switch = Switch::new(&domain, config).unwrap();
        Lab { switch, reader: domain.reader(), tree, now: seconds(10), sent: Vec::new() }
    }

    fn tell(&mut self, line: &str) -> Result<bool, StpError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut was_ours = false;
        for command in parse(&words).unwrap() {
            let place = command.port().map(|name| name[1..].parse().unwrap());
            was_ours |= self.tree.apply_command(&command, place, self.now)?;
        }
        self.tree.carry_out(&self.switch, &mut self.sent);
        Ok(was_ours)
    }

    fn tick(&mut self, time: Duration) {
        self.now += time;
        self.tree.tick(self.now);
        self.tree.carry_out(&self.switch, &mut self.sent);
    }

    fn hear(&mut self, place: u16, frame: &[u8]) {
        assert!(self.tree.accepts_frame(place, frame));
        self.tree.receive_frame(place, frame, self.now).unwrap();
        self.tree.carry_out(&self.switch, &mut self.sent);
    }

    /// Whether the switch takes frames of hosts at a port.
    fn is_open(&mut self, port: u16) -> bool {
        let source = EtherAddr([2, 0, 0, 9, 9, port as u8]);
        let question = Question {
            port,
            source,
            destination: EtherAddr::BROADCAST,
            vlan: None,
            ether_type: EtherType::IPV4,
        };
        let turn = self.reader.turn();
        !self.switch.explain_frame(&question, self.now, &turn).contains("dropped at")
    }
}

/// Two switches with a cable between their first ports and one between their second ones, for a second.
fn connected() -> [Lab; 2] {
    let mut labs = [Lab::new(1), Lab::new(2)];
    for lab in &mut labs {
        assert_eq!(lab.tell("stp p0 stp p1"), Ok(true));
    }
    for _ in 0..200 {
        for (from, to) in [(0, 1), (1, 0)] {
            let sent = std::mem::take(&mut labs[from].sent);
            sent.iter().for_each(|(place, frame)| labs[to].hear(*place, frame));
        }
        labs.iter_mut().for_each(|lab| lab.tick(millis(5)));
    }
    labs
}

#[test]
fn ports_that_take_part_are_held_back_and_the_others_are_not() {
    let mut lab = Lab::new(1);
    assert!([0, 1, 2].into_iter().all(|port| lab.is_open(port)) && !lab.tree.is_spoken());
    lab.tell("stp p0").unwrap();
    assert_eq!([0, 1, 2].map(|port| lab.is_open(port)), [false, true, true]);
    assert_eq!(lab.sent.len(), 1, "a proposal");
    lab.tell("edge p0").unwrap();
    assert!(lab.is_open(0));
    lab.tell("-edge p0 -autoedge p0 -stp p0 stp p0").unwrap();
    assert!(!lab.is_open(0));
    lab.tell("-stp p0").unwrap();
    assert!(lab.is_open(0) && lab.tree.port(0).is_none());
}

#[test]
fn a_second_cable_between_two_switches_is_closed_and_opens_when_the_first_is_cut() {
    let [mut root, mut other] = connected();
    assert_eq!([0, 1, 2].map(|port| root.is_open(port)), [true; 3]);
    assert_eq!([0, 1, 2].map(|port| other.is_open(port)), [true, false, true]);
    assert_eq!(other.tree.port(1).map(|port| port.role), Some(TreeRole::Alternate));

    let host: EtherAddr = "02:00:00:00:00:77".parse().unwrap();
    other.switch.learn_address(MacKey::from_address(host, 1), 0, false, other.now);
    assert!(!other.switch.show_addresses(other.now).is_empty());
    other.tree.set_link(0, None, other.now).unwrap();
    other.tree.carry_out(&other.switch, &mut other.sent);
    assert!(other.is_open(1));
    assert_eq!(other.switch.show_addresses(other.now), "", "the host is elsewhere now");
}

#[test]
fn what_bridges_say_is_heard_where_it_is_spoken_only() {
    let mut lab = Lab::new(1);
    lab.tell("stp p0").unwrap();
    let frame = Bpdu::Notification.build_frame(address(2, 0));
    assert!(
        lab.tree.accepts_frame(0, &frame)
            && !lab.tree.accepts_frame(1, &frame)
            && !lab.tree.accepts_frame(9, &frame)
    );
    let mut other = frame;
    other[5] = 1;
    assert!(!lab.tree.accepts_frame(0, &other) && !lab.tree.accepts_frame(0, &frame[..13]));
}

#[test]
fn all_words_reach_the_bridge() {
    let mut lab = Lab::new(1);
    let words =
        "stp p0 spanpriority 4096 hellotime 1 fwddelay 4 maxage 6 holdcnt 10 ifpriority p0 16 ifcost p0 77";
    assert_eq!(lab.tell(words), Ok(true));
    let text = lab.tree.bridge().view().to_string();
    let expected = "\tpriority 4096 hellotime 1 fwddelay 4 maxage 6 holdcnt 10 proto rstp\n";
    assert!(text.starts_with(expected), "{text}");
    let port = lab.tree.port(0).unwrap();
    assert_eq!(port.to_string(), "port 1 ifpriority 16 ifcost 77 discarding role designated");
    lab.tell("-ifcost p0").unwrap();
    assert_eq!(lab.tree.port(0).unwrap().cost, 20_000);
    lab.tell("-ptp p0").unwrap();
    assert!(!lab.tree.port(0).unwrap().is_point_to_point);
    lab.tell("autoptp p0").unwrap();
    assert!(lab.tree.port(0).unwrap().is_point_to_point);
    lab.tell("proto stp").unwrap();
    assert_eq!(lab.tree.port(0).unwrap().state_name(), "listening");
    assert_eq!(lab.tell("ifcost p1 70000"), Err(StpError::Cost(70_000)));
    for guard in ["bpduguard p0", "rootguard p0", "bpdufilter p0"] {
        assert_eq!(lab.tell(guard), Ok(true), "{guard}");
    }
    assert_eq!(lab.tell("-learn p0 link1"), Ok(false));
}

#[test]
fn a_port_that_leaves_the_switch_leaves_the_tree() {
    let mut lab = Lab::new(1);
    lab.tell("stp p0 ifcost p0 5").unwrap();
    assert_eq!(lab.tell("del p0"), Ok(false), "the switch is to hear it as well");
    assert!(!lab.tree.is_spoken() && lab.is_open(0));
    lab.tell("stp p0").unwrap();
    assert_eq!(lab.tree.port(0).unwrap().cost, 20_000);
    assert_eq!(lab.tree.port(0).unwrap().state, PortState::Discarding);
}
