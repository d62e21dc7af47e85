use super::*;
use crate::namespace::{Host, in_namespace, run, try_run};
use crate::{
    Attach, Hide, Interface, Method, PortClaim, PortHalf, RxQueue as _, TrafficCounts, TxQueue as _,
    memory_pair,
};
use artery_packet::{Batch, Pool};

/// Ports and handles may move to, and ports be shared by, other threads: else this does not compile.
const _: fn() = || {
    fn may_move<T: Send>() {}
    fn may_be_shared<T: Sync>() {}
    may_move::<RxHandle>();
    may_move::<TxHandle>();
    may_be_shared::<Ports>();
};

fn pool() -> &'static Pool {
    Pool::new(256, 8).unwrap()
}
fn interface(name: &str, receive: RxSettings) -> PortSpec {
    PortSpec::Interface { name: name.into(), receive: Some(receive), transmit: None }
}

#[test]
fn a_queue_goes_back_to_its_port_with_what_waits_in_it() {
    let pool = Pool::new(16, 1).unwrap();
    let (mut left, right) = memory_pair(4);
    let ports = Ports::default();
    let port = ports.insert("right", right);
    let handle = port.rx(0).unwrap();
    let name = || "right".to_owned();
    let taken = DeviceError::Taken { name: name(), half: PortHalf::Receive, queue: 0 };
    assert_eq!(port.rx(0).err(), Some(taken));
    let (half, queue, queues) = (PortHalf::Transmit, 1, 1);
    assert_eq!(port.tx(1).err(), Some(DeviceError::NoSuchQueue { name: name(), half, queue, queues }));
    let mut batch = Batch::default();
    batch.push(pool.packet_from(b"kept").unwrap());
    left.tx.transmit(&mut batch).unwrap();
    drop(handle);
    let again = ports.open(PortSpec::Memory { name: name() }, pool).unwrap();
    assert!(Arc::ptr_eq(&again, &port));
    assert_eq!(again.rx(0).unwrap().receive(pool, 4, &mut batch), Ok(1));
    assert_eq!(batch.iter().map(|p| p.in_port()).collect::<Vec<_>>(), [port.id()]);
}

#[test]
fn a_port_counts_whoever_holds_its_queues() {
    let pool = Pool::new(16, 1).unwrap();
    let (mut left, right) = memory_pair(4);
    let port = Ports::default().insert("right", right);
    let mut batch = Batch::default();
    for frame in [&[1; 60][..], &[2; 100]] {
        batch.push(pool.packet_from(frame).unwrap());
        left.tx.transmit(&mut batch).unwrap();
        port.rx(0).unwrap().receive(pool, 4, &mut batch).unwrap();
        port.tx(0).unwrap().transmit(&mut batch).unwrap();
        left.rx.receive(pool, 4, &mut batch).unwrap();
        batch.free_packets();
    }
    let both = TrafficCounts { packets: 2, bytes: 160, errors: 0 };
    assert_eq!((port.received(), port.sent()), (both, both));
    port.count_unsent(3);
    assert_eq!(port.sent().errors, 3);
}

#[test]
fn ports_that_nobody_refers_to_are_closed_on_request() {
    let ports = Ports::default();
    let held = ports.insert("held", memory_pair(1).0);
    ports.insert("free", memory_pair(1).0);
    let handle = ports.find("free").unwrap().rx(0).unwrap();
    let number = handle.port().id();
    ports.close_unused(|port| panic!("{port} is in use"));
    assert_eq!(ports.list().len(), 2);
    drop(handle);
    let mut closed = Vec::new();
    ports.close_unused(|port| closed.push(port));
    assert_eq!(closed, [number]);
    assert_eq!(ports.list().iter().map(|p| p.id()).collect::<Vec<_>>(), [held.id()]);
    assert!(ports.find("free").is_none());
}

#[test]
fn an_interface_that_does_not_exist_is_named_with_those_that_do() {
    let error = Ports::default().open(interface("nosuch0", Default::default()), pool()).unwrap_err();
    assert!(error.to_string().starts_with("nosuch0: no such interface; there are lo"), "{error}");
    let error = Ports::default().open(interface("no such", Default::default()), pool()).unwrap_err();
    assert_eq!(error, DeviceError::BadName { name: "no such".into() });
}

#[test]
fn one_interface_has_one_port_and_one_set_of_settings() {
    in_namespace(|| {
        let ports = Ports::default();
        let port = ports.open(interface("lo", Default::default()), pool()).unwrap();
        let sender = PortSpec::Interface { name: "lo".into(), receive: None, transmit: None };
        assert!(Arc::ptr_eq(&port, &ports.open(sender, pool()).unwrap()));
        let promiscuous = RxSettings { promiscuous: true, ..Default::default() };
        let handle = port.rx(0).unwrap();
        let error = ports.open(interface("lo", promiscuous.clone()), pool()).unwrap_err();
        let (name, open, asked) = ("lo".into(), "false".into(), "true".into());
        assert_eq!(error, DeviceError::Differs { name, setting: "PROMISC", open, asked });
        drop(handle);
        ports.open(interface("lo", promiscuous.clone()), pool()).expect("a free half may change");
        let port = Ports::default();
        let bare = PortSpec::Interface { name: "lo".into(), receive: None, transmit: None };
        let _default = port.open(bare, pool()).unwrap().rx(0).unwrap();
        assert!(port.open(interface("lo", Default::default()), pool()).is_ok());
        let error = port.open(interface("lo", promiscuous), pool()).unwrap_err();
        assert!(matches!(error, DeviceError::Differs { setting: "PROMISC", .. }), "{error}");
        let error = ports.open(PortSpec::Tap(TapSettings::new("lo")), pool()).unwrap_err();
        assert!(matches!(error, DeviceError::Differs { setting: "kind", .. }), "{error}");
    });
}

/// A veth pair of these names, the first end up.
fn make_pair(name: &str, peer: &str) {
    run(&format!("ip link add {name} type veth peer name {peer}"));
    run(&format!("ip link set {name} up"));
}

#[test]
fn a_port_is_opened_on_an_interface_that_is_up() {
    in_namespace(|| {
        run("ip link add left type veth peer name right");
        let down = Ports::default().open(interface("left", Default::default()), pool()).unwrap_err();
        assert_eq!(down, DeviceError::Down { name: "left".into() });
    });
}

#[test]
fn a_port_without_interface_is_absent_and_takes_one_of_its_name() {
    in_namespace(|| {
        let ports = Ports::default();
        make_pair("left", "right");
        let hiding = RxSettings { hide: Hide::All, ..RxSettings::default() };
        let port = ports.open(interface("left", hiding.clone()), pool()).unwrap();
        let (rx, tx) = (port.rx(0).unwrap(), port.tx(0).unwrap());
        let first = port.interface().unwrap();
        assert_eq!(port.state(), PortState::Down, "the peer is down");
        assert!(port.follow_interface().is_empty(), "the peer is down");
        run("ip link del left");
        let said = port.follow_interface();
        assert!(said.len() == 1 && said[0].contains("the port is absent"), "{said:?}");
        assert_eq!(port.state(), PortState::Absent, "it is said once");
        assert!(port.follow_interface().is_empty(), "it is said once");
        assert!(rx.is_stale() && tx.is_stale());
        assert_eq!(tx.lose_interface(), None, "it is known");
        let gone = Some(DeviceError::Gone { name: "left".into() });
        assert_eq!((port.rx(0).err(), port.tx(0).err()), (gone.clone(), gone));
        // A graph that takes the place of the running one has the port, too.
        assert!(Arc::ptr_eq(&port, &ports.open(interface("left", hiding), pool()).unwrap()));
        run("ip link add left mtu 1400 type veth peer name right");
        let said = port.follow_interface();
        assert!(said[0].contains("there is an interface 'left' again"), "{said:?}");
        assert!(said[1].contains("MTU is 1400 now, and was 1500"), "{said:?}");
        let second = port.interface().unwrap();
        assert_ne!((first.index, first.mac), (second.index, second.mac));
        // Queues of the first are of no use to whoever still has one; they need not be given back.
        let again = (port.rx(0).unwrap(), port.tx(0).unwrap());
        drop((rx, tx));
        let taken = |half| Some(DeviceError::Taken { name: "left".into(), half, queue: 0 });
        assert_eq!(port.rx(0).err(), taken(PortHalf::Receive));
        assert_eq!(port.tx(0).err(), taken(PortHalf::Transmit));
        assert!(!again.0.is_stale());
        assert!(PortClaim::new(&second).is_ok(), "this process has it");
        assert_eq!((ports.list().len(), port.generation()), (1, 2));
    });
}

#[test]
fn a_port_keeps_its_interface_by_its_number_and_takes_none_that_another_has() {
    in_namespace(|| {
        let ports = Ports::default();
        make_pair("left", "l");
        make_pair("right", "r");
        let open = |name| ports.open(interface(name, RxSettings::default()), pool()).unwrap();
        let (left, right) = (open("left"), open("right"));
        let index = |port: &Port| port.interface().unwrap().index;
        let (first, second) = (index(&left), index(&right));
        // Both change their names.
        for (from, to) in [("left", "other"), ("right", "left"), ("other", "right")] {
            run(&format!("ip link set {from} name {to}"));
        }
        let said = [left.follow_interface(), right.follow_interface()].concat();
        assert!(said[0].starts_with("left: its interface is called right now, and was left"), "{said:?}");
        assert!(said[1].starts_with("right: its interface is called left now"), "{said:?}");
        assert_eq!((index(&left), index(&right)), (first, second));
        assert_eq!((left.name(), right.name()), ("left", "right"));
        assert!(Arc::ptr_eq(&ports.find("left").unwrap(), &left));
        // The one that is called left now is the other port's.
        run("ip link del right");
        assert_eq!(left.follow_interface().len(), 1);
        assert_eq!(left.follow_interface().len(), 0);
        assert_eq!(left.state(), PortState::Absent);
        run("ip link set left name elsewhere");
        run("ip link add left type veth peer name l");
        assert_eq!(left.follow_interface().len(), 2, "another Ethernet address, too");
        assert_eq!((left.state(), index(&right)), (PortState::Down, second));
    });
}

#[test]
fn an_interface_that_left_the_namespace_is_another_when_it_returns_by_the_same_number() {
    in_namespace(|| {
        let here = rustix::thread::gettid();
        for method in [Method::Packet, Method::Xdp(Attach::Best)] {
            make_pair("left", "right");
            run("ip link set right up");
            let receive = RxSettings { method, ..RxSettings::default() };
            let port = Ports::default().open(interface("left", receive), pool()).unwrap();
            let (mut rx, mut tx) = (port.rx(0).unwrap(), port.tx(0).unwrap());
            let index = port.interface().unwrap().index;
            let elsewhere = Host::new();
            run(&format!("ip link set left netns {}", elsewhere.id()));
            elsewhere.run(&format!("ip link set left netns {here}"));
            run("ip link set left up");
            assert_eq!(Interface::find("left").unwrap().index, index, "or this test shows nothing");
            assert!(
                port.follow_interface().iter().all(|said| !said.contains("absent")),
                "looks alone do not tell"
            );
            assert_eq!(rx.is_attached(), method != Method::Packet, "{method:?} finds out by an error");
            let mut batch = Batch::default();
            let gone = DeviceError::Gone { name: "left".into() };
            let found = (0..1000).find_map(|_| rx.receive(pool(), 1, &mut batch).err());
            assert_eq!(found, Some(gone.clone()), "{method:?}");
            batch.push(pool().packet_from(&[0xff; 60]).unwrap());
            assert_eq!(tx.transmit(&mut batch), Err(gone), "{method:?}");
            assert!(rx.lose_interface().is_some());
            drop((rx, tx));
            assert_eq!((port.follow_interface().len(), port.state()), (1, PortState::Up));
            let mut tx = port.tx(0).unwrap();
            // Its link may not be ready yet.
            assert_eq!((tx.transmit(&mut batch).is_ok(), port.rx(0).is_ok()), (true, true), "{method:?}");
            drop(tx);
            run("ip link del left");
        }
    });
}

#[test]
fn an_interface_of_another_kind_is_not_taken_and_that_is_said_once() {
    in_namespace(|| {
        make_pair("left", "right");
        let port = Ports::default().open(interface("left", Default::default()), pool()).unwrap();
        run("ip link del left");
        run("ip tuntap add left mode tun");
        let said = port.follow_interface();
        assert!(said.len() == 2 && said[1].contains("the port stays absent"), "{said:?}");
        assert_eq!((port.follow_interface(), port.state()), (Vec::new(), PortState::Absent));
        run("ip link del left");
        make_pair("left", "right");
        assert_eq!((port.follow_interface().len(), port.is_absent()), (2, false));
    });
}

#[test]
fn a_tap_device_that_was_deleted_is_made_again() {
    in_namespace(|| {
        let settings =
            TapSettings { addresses: vec![("10.0.0.1".parse().unwrap(), 24)], ..TapSettings::new("art0") };
        let port = Ports::default().open(PortSpec::Tap(settings), pool()).unwrap();
        let mut rx = port.rx(0).unwrap();
        run("ip link del art0");
        let mut batch = Batch::default();
        let error = rx.receive(pool(), 1, &mut batch);
        assert_eq!(error, Err(DeviceError::Gone { name: "art0".into() }));
        assert!(rx.lose_interface().is_some());
        drop(rx);
        assert!(port.follow_interface()[0].contains("there is an interface 'art0' again"));
        assert_eq!(port.rx(0).unwrap().receive(pool(), 1, &mut batch), Ok(0));
        let shown = String::from_utf8(try_run("ip address show art0").stdout).unwrap();
        assert!(shown.contains("10.0.0.1/24"), "{shown}");
    });
}

#[test]
fn promiscuous_mode_changes_with_the_graph_while_queues_are_in_use() {
    in_namespace(|| {
        run("ip link add left type veth peer name right");
        run("ip link set left up");
        let ports = Ports::default();
        let with = |promiscuous| interface("left", RxSettings { promiscuous, ..Default::default() });
        let port = ports.open(with(false), pool()).unwrap();
        let rx = port.rx(0).unwrap();
        let is_on =
            || String::from_utf8(try_run("ip -d link show left").stdout).unwrap().contains("promiscuity 1");
        for (wanted, is_replaced) in
            [(true, false), (true, true), (true, true), (false, false), (false, true)]
        {
            let before = is_on();
            ports.begin_replacement();
            ports.open(with(wanted), pool()).unwrap();
            let error = ports.open(with(!wanted), pool()).unwrap_err();
            assert!(matches!(error, DeviceError::Differs { setting: "PROMISC", .. }), "{error}");
            assert_eq!(is_on(), before, "the running graph stays as it is");
            assert_eq!(ports.end_replacement(is_replaced), []);
            assert_eq!(is_on(), if is_replaced { wanted } else { before });
        }
        assert!(ports.open(with(true), pool()).is_err(), "the graph is not being replaced");
        drop(rx);
    });
}

#[test]
fn a_half_that_nobody_holds_is_closed_while_the_other_is_at_work() {
    in_namespace(|| {
        run("ip link add left type veth peer name right");
        run("ip link set left up");
        let ports = Ports::default();
        let promiscuous = RxSettings { promiscuous: true, ..Default::default() };
        let port = ports.open(interface("left", promiscuous), pool()).unwrap();
        let (rx, _tx) = (port.rx(0).unwrap(), port.tx(0).unwrap());
        let mode = || String::from_utf8(try_run("ip -d link show left").stdout).unwrap();
        drop(rx);
        assert!(mode().contains("promiscuity 1"), "a successor may take it: {}", mode());
        ports.close_unused(|_| {});
        assert!(mode().contains("promiscuity 0"), "{}", mode());
        port.rx(0).expect("it opens again");
    });
}

#[test]
fn af_xdp_in_use_one_way_is_not_had_in_another_and_is_given_back_when_unused() {
    in_namespace(|| {
        run("ip link add left type veth peer name right");
        run("ip link set left up");
        let ports = Ports::default();
        let by = |attach| RxSettings { method: Method::Xdp(attach), ..Default::default() };
        let transmit = Some(TxSettings { method: Method::Xdp(Attach::Generic), ..Default::default() });
        let port = ports.open(interface("left", by(Attach::Best)), pool()).unwrap();
        let rx = port.rx(0).unwrap();
        ports.open(PortSpec::Interface { name: "left".into(), receive: None, transmit }, pool()).unwrap();
        let (name, open, asked) = ("left".into(), "XDP".into(), "XDP_GENERIC".into());
        assert_eq!(port.tx(0).err(), Some(DeviceError::Differs { name, setting: "METHOD", open, asked }));
        let program = || String::from_utf8(try_run("ip -d link show left").stdout).unwrap().contains("xdp");
        assert!(program());
        drop(rx);
        ports.close_unused(|_| {});
        assert!(!program());
        port.tx(0).expect("no other use is left");
    });
}
