use super::*;
use crate::memory_pair;
use crate::namespace::{in_namespace, run, try_run};
use crate::{Attach, Method};
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
    assert_eq!(port.rx(0).err(), Some(DeviceError::Taken { name: name(), half: Half::Receive, queue: 0 }));
    let (half, queue, queues) = (Half::Transmit, 1, 1);
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
        batch.free();
    }
    let both = Traffic { packets: 2, bytes: 160, errors: 0 };
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
        ports
            .open(interface("lo", promiscuous.clone()), pool())
            .expect("a half that nobody holds may change");
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

#[test]
fn an_interface_that_was_made_anew_gets_a_new_port_of_the_same_number() {
    in_namespace(|| {
        let ports = Ports::default();
        run("ip link add left type veth peer name right");
        let down = ports.open(interface("left", Default::default()), pool()).unwrap_err();
        assert_eq!(down, DeviceError::Down { name: "left".into() });
        run("ip link set left up");
        let first = ports.open(interface("left", Default::default()), pool()).unwrap();
        run("ip link del left");
        assert!(ports.open(interface("left", Default::default()), pool()).is_err());
        assert!(Arc::ptr_eq(&first, &ports.find("left").unwrap()), "its number and counts are not forgotten");
        run("ip link add left type veth peer name right");
        run("ip link set left up");
        let second = ports.open(interface("left", Default::default()), pool()).unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!(first.id(), second.id());
        assert_eq!(ports.list().len(), 1);
        second.rx(0).unwrap();
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
        let error = port.tx(0).err();
        assert_eq!(error, Some(DeviceError::Differs { name, setting: "METHOD", open, asked }));
        let program = || String::from_utf8(try_run("ip -d link show left").stdout).unwrap().contains("xdp");
        assert!(program());
        drop(rx);
        ports.close_unused(|_| {});
        assert!(!program());
        port.tx(0).expect("nobody uses it otherwise any more");
    });
}
