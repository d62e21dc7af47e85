use super::*;
use crate::namespace::{run, try_run, with_taps};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

fn settings(name: &str, ethernet: bool) -> TapSettings {
    let addresses = vec![("10.9.0.1".parse().unwrap(), 24), ("fd00:9::1".parse().unwrap(), 64)];
    TapSettings { ethernet, addresses, ..TapSettings::new(name) }
}

/// Receives until `wanted` says so of a packet, for at most five seconds.
fn receive(rx: &mut TapRx, pool: &'static Pool, wanted: impl Fn(&[u8]) -> bool) -> Packet {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        let mut got = Batch::default();
        rx.receive(pool, 64, &mut got).unwrap();
        if let Some(packet) = got.drain().find(|packet| wanted(packet.data())) {
            return packet;
        }
        std::thread::yield_now();
    }
    panic!("nothing came within five seconds");
}

/// Turns an IPv4 UDP packet round, which leaves its checksums right.
fn turn_round(ip: &mut [u8]) {
    let (src, dst) = ip[12..20].split_at_mut(4);
    src.swap_with_slice(dst);
    let (src, dst) = ip[20..24].split_at_mut(2);
    src.swap_with_slice(dst);
}

#[test]
fn what_the_host_sends_by_a_tun_comes_here_and_goes_back() {
    with_taps(|| {
        let pool = Pool::new(256, 8).unwrap();
        let device = TapDevice::open(&settings("tun%d", false)).unwrap();
        assert_eq!(device.interface.name, "tun0");
        let (mut rx, mut tx) = (device.rx(0, 7).unwrap(), device.tx(0).unwrap());
        let socket = UdpSocket::bind("10.9.0.1:1000").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket.send_to(b"there and back", "10.9.0.2:2000").unwrap();
        let mut packet = receive(&mut rx, pool, |ip| ip[0] == 0x45 && ip.ends_with(b"there and back"));
        assert_eq!((packet.in_port(), packet.packet_type()), (7, PacketType::Host));
        assert!(packet.timestamp().seconds() > 1_000_000_000);
        turn_round(packet.data_mut());
        let mut batch = Batch::default();
        batch.push(packet);
        batch.push(pool.packet_from(&[0xff; 5]).unwrap());
        assert_eq!(tx.transmit(&mut batch), Ok(2));
        assert_eq!((tx.counters().packets, tx.counters().refused), (1, 1));
        let mut answer = [0; 64];
        let (len, from) = socket.recv_from(&mut answer).unwrap();
        assert_eq!((&answer[..len], from), (&b"there and back"[..], "10.9.0.2:2000".parse().unwrap()));
    });
}

#[test]
fn a_jumbo_packet_goes_into_a_big_frame() {
    with_taps(|| {
        let pool = Pool::new(256, 8).unwrap();
        let jumbo = TapSettings { mtu: Some(9000), ..settings("jumbo", false) };
        let device = TapDevice::open(&jumbo).unwrap();
        assert_eq!(device.interface.mtu, 9000);
        let mut rx = device.rx(0, 0).unwrap();
        let payload: Vec<u8> = (0..8000u32).map(|n| (n % 251) as u8).collect();
        let socket = UdpSocket::bind("10.9.0.1:1000").unwrap();
        socket.send_to(&payload, "10.9.0.2:2000").unwrap();
        let packet = receive(&mut rx, pool, |ip| ip.len() > 1500);
        assert_eq!(packet.data()[28..], payload);
    });
}

#[test]
fn a_tap_gets_the_address_and_state_asked_for_and_vanishes_with_its_port() {
    with_taps(|| {
        let mac = [2, 0, 0, 0, 0, 0x77];
        let device = TapDevice::open(&TapSettings { mac: Some(mac), ..settings("art0", true) }).unwrap();
        assert_eq!((device.interface.mac, device.interface.up), (Some(mac), true));
        let shown = String::from_utf8(try_run("ip address show art0").stdout).unwrap();
        assert!(shown.contains("inet 10.9.0.1/24") && shown.contains("inet6 fd00:9::1/64"), "{shown}");
        assert!(!shown.contains("fd00:9::1/64 scope global tentative"), "{shown}");
        let busy = TapDevice::open(&settings("art0", true)).unwrap_err();
        assert!(busy.to_string().contains("art0: making a TAP device failed"), "{busy}");
        drop(device);
        assert!(!try_run("ip link show art0").status.success());
        let taken = TapDevice::open(&settings("lo", true)).unwrap_err();
        assert!(taken.to_string().contains("lo: making a TAP device of the name of another"), "{taken}");
    });
}

#[test]
fn a_device_has_several_addresses_of_a_family_and_routes_with_a_metric() {
    with_taps(|| {
        let route = |to: &str, len, gateway: &str| HostRoute {
            to: (to.parse().unwrap(), len),
            gateway: gateway.parse().unwrap(),
            metric: 4096,
        };
        let mut settings = settings("art0", true);
        settings.addresses.extend([("10.8.0.1".parse().unwrap(), 16), ("fd00:8::1".parse().unwrap(), 64)]);
        settings.routes = vec![
            route("0.0.0.0", 0, "10.8.0.9"),
            route("10.7.0.0", 16, "192.0.2.1"),
            route("::", 0, "fd00:8::9"),
        ];
        let _device = TapDevice::open(&settings).unwrap();
        let shown = |command| String::from_utf8(try_run(command).stdout).unwrap();
        let addresses = shown("ip -o address show art0");
        for address in ["10.9.0.1/24", "10.8.0.1/16", "fd00:9::1/64", "fd00:8::1/64"] {
            assert!(addresses.contains(&format!(" {address} ")), "{address}: {addresses}");
        }
        let routes = shown("ip route") + &shown("ip -6 route");
        for (to, gateway) in [("default", "10.8.0.9"), ("10.7.0.0/16", "192.0.2.1"), ("default", "fd00:8::9")]
        {
            let line = routes.lines().find(|line| line.starts_with(&format!("{to} via {gateway} dev art0")));
            assert!(line.is_some_and(|line| line.contains("metric 4096")), "{to} {gateway}: {routes}");
        }
    });
}

#[test]
fn a_device_that_is_there_gets_other_addresses_routes_and_mtu() {
    with_taps(|| {
        let address = |text: &str, len| (text.parse::<IpAddr>().unwrap(), len);
        let route = |to, gateway: &str| HostRoute { to, gateway: gateway.parse().unwrap(), metric: 4096 };
        let mut before = settings("art0", true);
        before.addresses.push(address("10.9.0.2", 24));
        before.routes = vec![route(address("10.7.0.0", 16), "10.9.0.9")];
        let device = TapDevice::open(&before).unwrap();
        // The second address would go with the first, on whose network it is.
        let mut after = TapSettings { mtu: Some(1400), ..settings("art0", true) };
        after.addresses = vec![address("10.9.0.2", 24), address("10.8.0.1", 16), address("fd00:9::1", 80)];
        after.routes = vec![route(address("10.6.0.0", 16), "10.8.0.9")];
        device.change(&before, &after).unwrap();
        let shown = |command| String::from_utf8(try_run(command).stdout).unwrap();
        let addresses = shown("ip -o address show art0");
        let has = |address: &str| addresses.contains(&format!(" {address} "));
        assert!(["10.9.0.2/24", "10.8.0.1/16", "fd00:9::1/80"].into_iter().all(has), "{addresses}");
        assert!(!["10.9.0.1/24", "fd00:9::1/64"].into_iter().any(has), "{addresses}");
        let routes = shown("ip route show dev art0");
        assert!(routes.contains("10.6.0.0/16 via 10.8.0.9"), "{routes}");
        assert!(!routes.contains("10.7.0.0/16"), "{routes}");
        assert!(shown("ip link show art0").contains(" mtu 1400 "));
        device.change(&after, &before).unwrap();
        assert!(shown("ip link show art0").contains(" mtu 1500 "));
    });
}

#[test]
fn a_device_that_was_taken_away_or_down_is_told_apart() {
    with_taps(|| {
        let pool = Pool::new(256, 8).unwrap();
        let device = TapDevice::open(&settings("art0", true)).unwrap();
        let (mut rx, mut tx) = (device.rx(0, 0).unwrap(), device.tx(0).unwrap());
        let mut batch = Batch::default();
        batch.push(pool.packet_from(&[0; 60]).unwrap());
        run("ip link set art0 down");
        assert_eq!(tx.transmit(&mut batch), Err(DeviceError::Down { name: "art0".into() }));
        run("ip link del art0");
        let gone = DeviceError::Gone { name: "art0".into() };
        assert_eq!(tx.transmit(&mut batch), Err(gone.clone()));
        assert_eq!(rx.receive(pool, 1, &mut Batch::default()), Err(gone));
        assert_eq!(batch.len(), 1);
    });
}
