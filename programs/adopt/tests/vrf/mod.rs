//! VRFs, from what a kernel would say of them to where frames go. The kernel that runs the tests may have no
//! VRFs, so that they are made up here; interfaces and programs are real. Machines that boot a kernel with
//! VRFs do the same with traffic (row adopt-vrf of lab/rig/src/vm).
use crate::support::wire::frame;
use crate::support::{in_namespace, ip_must};
use artery_adopt::fast::{Accelerator, ForwardDecision, Mode};
use artery_adopt::kernel::{
    Family, Link, LinkKind, Manner, Neighbor, News, Path, Record, Route, RouteHop, RouteKind, Rule,
    RuleAction, Selectors,
};
use artery_adopt::mirror::{Mirror, MirrorDriver, RecordingSink};
use artery_device::bpf::{self, Hook};
use artery_l3::router::ReversePath;
use artery_wire::EtherAddr;
use std::net::IpAddr;
use std::time::Instant;

const RED: u32 = 1007;
const BLUE: u32 = 1008;
const VLAN: u32 = 1010;
/// NUD_PERMANENT.
const PERMANENT: u16 = 0x80;
const SOURCE: &str = "192.0.2.1";
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// A mirror and an accelerator, with the interfaces of this namespace.
struct Rig {
    mirror: Mirror,
    accelerator: Accelerator,
    links: Vec<Link>,
}

impl Rig {
    /// Adopts eth1 to eth3. eth1 has a VLAN 10, which is made up, too.
    fn new() -> Rig {
        for number in 1..=3 {
            ip_must(&format!(
                "link add eth{number} type veth peer name peer{number}
                 link set eth{number} up
                 link set peer{number} up"
            ));
        }
        let mut seen = RecordingSink::default();
        MirrorDriver::open().unwrap().load(Instant::now(), &mut seen).unwrap();
        let accelerator = Accelerator::new().unwrap();
        accelerator.lease().renew_for_good().unwrap();
        let mut links: Vec<Link> = seen.links.into_values().collect();
        let eth1 = links.iter().find(|link| link.name == "eth1").unwrap().clone();
        let kind = LinkKind::Vlan { id: 10, parent: eth1.index, tag_type: 0x8100, sets_priority: false };
        links.push(Link { index: VLAN, name: "eth1.10".into(), kind, ..eth1 });
        let mut rig = Rig { mirror: Mirror::default(), accelerator, links };
        for name in ["eth1", "eth2", "eth3"] {
            let index = rig.link(name).index;
            rig.accelerator.adopt(index, Mode::Generic).unwrap();
        }
        let forwards = rig.links.iter().map(|link| (link.index, ReversePath::Off)).collect();
        rig.accelerator.set_reverse_paths(forwards);
        for link in rig.links.clone() {
            rig.tell(Record::Link(link));
        }
        rig.add_rules();
        for (index, table) in [(RED, 100), (BLUE, 200)] {
            let vrf = Link {
                index,
                name: format!("vrf{index}"),
                kind: LinkKind::Vrf { table },
                ..rig.link("eth1")
            };
            rig.tell(Record::Link(vrf));
        }
        rig
    }

    fn add_rules(&mut self) {
        for family in [Family::V4, Family::V6] {
            for (priority, table, is_vrf) in [(0, 255, false), (1000, 0, true), (32766, 254, false)] {
                let (action, selectors) =
                    (RuleAction::Table(table), Selectors { is_vrf, ..Selectors::default() });
                let (suppressed_len, suppressed_group) = (None, None);
                let rule = Rule { family, priority, action, selectors, suppressed_len, suppressed_group };
                self.tell(Record::Rule(rule));
            }
        }
    }

    fn link(&self, name: &str) -> Link {
        self.links.iter().find(|link| link.name == name).unwrap().clone()
    }

    fn tell(&mut self, record: Record) {
        let news = News { is_gone: false, manner: Manner::Replace, record };
        self.mirror.apply_change(news, &mut self.accelerator);
    }

    fn join(&mut self, name: &str, master: Option<u32>) {
        let link = Link { master, ..self.link(name) };
        self.tell(Record::Link(link));
    }

    fn route(&mut self, table: u32, prefix: &str, out: &str) {
        let (destination, len) = prefix.split_once('/').unwrap();
        let destination: IpAddr = destination.parse().unwrap();
        let link = self.link(out).index;
        let hop = RouteHop {
            link,
            gateway: Some(gateway(destination)),
            weight: 1,
            is_dead: false,
            is_without_carrier: false,
            has_encapsulation: false,
        };
        self.tell(Record::Route(Route {
            family: if destination.is_ipv4() { Family::V4 } else { Family::V6 },
            table,
            destination,
            len: len.parse().unwrap(),
            source: None,
            tos: 0,
            priority: 0,
            protocol: 3,
            preference: 0,
            expires: false,
            has_realm: false,
            path: Path { kind: RouteKind::Unicast, object: 0, hops: vec![hop], mtu: None },
        }));
    }

    /// Where a packet goes that comes by an interface, with a VLAN's tag or without: the name of the port
    /// that it leaves by, or why the kernel gets it.
    fn way(&mut self, name: &str, vlan: Option<u16>, destination: &str) -> String {
        let frame = self.frame(name, vlan, destination);
        match self.accelerator.decide_frame(self.link(name).index, &frame).unwrap() {
            ForwardDecision::Kernel(reason) => reason.name().to_owned(),
            ForwardDecision::Send { device, frame } => {
                let is_it = |link: &&Link| self.accelerator.port(link.index) == Some(device);
                let port = self.links.iter().find(is_it).unwrap().name.clone();
                if frame[12..14] == [0x81, 0] { format!("{port}.{}", frame[15]) } else { port }
            }
        }
    }

    fn frame(&self, name: &str, vlan: Option<u16>, destination: &str) -> Vec<u8> {
        let destination: IpAddr = destination.parse().unwrap();
        let source = if destination.is_ipv4() { SOURCE } else { "2001:db8:ffff::1" };
        let source: IpAddr = source.parse().unwrap();
        let mut frame = frame(self.link(name).mac.unwrap(), source, destination);
        if let Some(vlan) = vlan {
            let [high, low] = vlan.to_be_bytes();
            drop(frame.splice(12..12, [0x81, 0, high, low]));
        }
        frame
    }

    /// What the port's programs do with the frame, where it leaves as the decision says.
    fn check_program(&mut self, name: &str, vlan: Option<u16>, destination: &str) {
        let link = self.link(name).index;
        let hook = Hook::Xdp { flags: 0, multi_buffer: bpf::takes_multi_buffer() };
        let program = bpf::load(hook, &self.accelerator.program(link).unwrap()).unwrap();
        let frame = self.frame(name, vlan, destination);
        let outcome = bpf::run(&program, &frame, None, 1).unwrap();
        match self.accelerator.decide_frame(link, &frame).unwrap() {
            ForwardDecision::Kernel(_) => assert_eq!((outcome.action, outcome.frame), (XDP_PASS, frame)),
            ForwardDecision::Send { frame, .. } => {
                assert_eq!((outcome.action, outcome.frame), (XDP_REDIRECT, frame));
            }
        }
    }

    fn check_programs(&mut self, destination: &str) {
        for (name, vlan) in [("eth1", None), ("eth1", Some(10)), ("eth3", None)] {
            self.check_program(name, vlan, destination);
        }
    }

    fn ways(&mut self, destination: &str) -> [String; 3] {
        [("eth1", None), ("eth1", Some(10)), ("eth3", None)]
            .map(|(name, vlan)| self.way(name, vlan, destination))
    }
}

/// The gateway of all routes of a family.
fn gateway(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { "10.255.0.1" } else { "2001:db8:ee::1" }.parse().unwrap()
}

#[test]
fn ports_and_vlans_of_vrfs_go_by_their_own_fibs() {
    in_namespace(|| {
        let mut rig = Rig::new();
        for name in ["eth1", "eth1.10", "eth2", "eth3"] {
            for address in ["10.255.0.1", "2001:db8:ee::1"] {
                let (link, address) = (rig.link(name).index, address.parse().unwrap());
                let mac = Some(EtherAddr([2, 0, 0, 0, 9, 9]));
                rig.tell(Record::Neighbor(Neighbor {
                    link,
                    address,
                    mac,
                    state: PERMANENT,
                    flags: 0,
                    more_flags: 0,
                }));
            }
        }
        for (prefix, address) in [("10.1.0.0/16", "10.1.2.3"), ("2001:db8:1::/48", "2001:db8:1::3")] {
            rig.route(254, prefix, "eth2");
            rig.route(100, prefix, "eth3");
            rig.route(200, prefix, "eth1");
            rig.accelerator.complete_updates().unwrap();
            assert_eq!(rig.ways(address), ["eth2", "eth2", "eth2"]);
        }
        // A port in one VRF, and its VLAN in the other. Until programs know the FIBs it is the kernel's.
        rig.join("eth1", Some(RED));
        rig.join("eth1.10", Some(BLUE));
        assert_eq!(rig.ways("10.1.2.3"), ["policy", "policy", "eth2"]);
        rig.accelerator.complete_updates().unwrap();
        for address in ["10.1.2.3", "2001:db8:1::3"] {
            assert_eq!(rig.ways(address), ["eth3", "eth1", "eth2"]);
            rig.check_programs(address);
        }
        // A changed route is right at once, and leaks to a port of another VRF, or of none.
        rig.route(100, "10.1.0.0/16", "eth1.10");
        rig.route(200, "10.1.0.0/16", "eth3");
        assert_eq!(rig.ways("10.1.2.3"), ["eth1.10", "eth3", "eth2"]);
        rig.check_programs("10.1.2.3");
        // Who moves goes by no old table, and no one else waits for it. The VLAN's program knows red's FIB.
        rig.join("eth1.10", Some(RED));
        assert_eq!(rig.ways("10.1.2.3"), ["eth1.10", "same-port", "eth2"]);
        rig.join("eth1", None);
        assert_eq!(rig.ways("10.1.2.3"), ["policy", "same-port", "eth2"]);
        rig.accelerator.complete_updates().unwrap();
        assert_eq!(rig.ways("10.1.2.3"), ["eth2", "same-port", "eth2"]);
        rig.check_programs("10.1.2.3");
        for _ in 0..3 {
            rig.join("eth3", Some(BLUE));
            rig.accelerator.complete_updates().unwrap();
            assert_eq!(rig.way("eth3", None, "10.1.2.3"), "same-port");
            rig.join("eth3", None);
            rig.accelerator.complete_updates().unwrap();
            assert_eq!(rig.way("eth3", None, "10.1.2.3"), "eth2", "numbers of FIBs are used again");
        }
    });
}

#[test]
fn ports_of_more_vrfs_than_have_fibs_stay_with_the_kernel() {
    in_namespace(|| {
        let mut rig = Rig::new();
        let eth1 = rig.link("eth1");
        let vlan = |number: u32, master: Option<u32>| {
            let kind = LinkKind::Vlan {
                id: 100 + number as u16,
                parent: eth1.index,
                tag_type: 0x8100,
                sets_priority: false,
            };
            Link { index: 2000 + number, name: format!("eth1.{number}"), kind, master, ..eth1.clone() }
        };
        for number in 0..17 {
            let kind = LinkKind::Vrf { table: 1000 + number };
            rig.tell(Record::Link(Link {
                index: 3000 + number,
                name: format!("vrf{number}"),
                kind,
                ..eth1.clone()
            }));
            rig.tell(Record::Link(vlan(number, Some(3000 + number))));
        }
        let lacking = |rig: &Rig| {
            let is_without = |number: &u32| rig.accelerator.lacks_fib(2000 + number);
            (0..17).filter(is_without).collect::<Vec<_>>()
        };
        assert_eq!(lacking(&rig), [16]);
        // One that leaves makes room for one that joins.
        rig.tell(Record::Link(vlan(3, None)));
        for master in [None, Some(3016)] {
            rig.tell(Record::Link(vlan(16, master)));
        }
        assert_eq!(lacking(&rig), [] as [u32; 0]);
    });
}
