//! The configuration of May 1999, as printed, forwards between two hosts on one segment.

use artery_device::{PcapOptions, PcapReader, PcapWriter};
use artery_engine::{RouterSettings, Time};
use artery_papers::click1999::{
    self, DARKSTAR, INTERFACE, Neighbors, Segment, TSB, TestStation, Verdict, ZEUS,
};
use artery_rig::program::{artery, checked};
use artery_rig::{Frame, Result, Rig};
use artery_wire::build::{arp_request, ether, icmp_echo};
use artery_wire::{Ethernet, Ipv4};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(5);

/// A test on the segment. Whether the program is there is asked first: making hosts takes time.
fn on_the_segment(label: &str, body: impl FnOnce(&Segment) -> Result<()>) {
    artery_rig::test(label, |rig: &Rig| {
        artery()?;
        body(&Segment::new(rig)?)
    });
}

/// The captured IPv4 frames that go to the card of this host.
fn sent_to<'a>(frames: &'a [Frame], station: &TestStation) -> Vec<&'a [u8]> {
    let to = |frame: &&[u8]| Ethernet::new(*frame).is_ok_and(|ethernet| ethernet.dst() == station.mac);
    frames.iter().map(|frame| frame.bytes.as_slice()).filter(to).collect()
}

#[test]
fn hosts_ping_and_talk_tcp_through_darkstar_with_their_usual_offloads() {
    on_the_segment("1999", |segment| {
        let router = segment.start_router(&[])?;
        let there = segment.zeus.ping(&TSB.ip.to_string(), 20)?;
        assert_eq!((there.sent, there.received, there.duplicates), (20, 20, 0), "{}", there.text);
        let back = segment.tsb.ping(&ZEUS.ip.to_string(), 20)?;
        assert_eq!((back.received, back.duplicates), (20, 0), "{}", back.text);
        let tcp = segment.zeus.iperf3(&segment.tsb, &TSB.ip.to_string(), &["-t", "2"])?;
        assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
        segment.stop_router(router)?;
        assert_eq!(segment.zeus.ping(&TSB.ip.to_string(), 1)?.received, 0, "no other host forwards");
        Ok(())
    });
}

#[test]
fn a_forwarded_packet_has_one_hop_less_a_right_checksum_and_new_addresses() {
    on_the_segment("1999-packet", |segment| {
        let router = segment.start_router(&[])?;
        let capture = segment.tsb.capture_with("eth0", &["-Q", "in", "ip"])?;
        segment.zeus.transmit("eth0", &[click1999::segment(&ZEUS, &TSB, 64)])?;
        let frames = capture.wait_for(1, SOON)?;
        let mut wanted = click1999::segment(&ZEUS, &TSB, 64);
        assert_eq!(click1999::forward(&mut wanted, &Neighbors::of(&[TSB])), Verdict::Send);
        assert_eq!(frames[0].bytes, wanted);
        let ethernet = Ethernet::new(frames[0].bytes.as_slice()).unwrap();
        assert_eq!((ethernet.dst(), ethernet.src()), (TSB.mac, DARKSTAR.mac));
        let header = Ipv4::new(ethernet.payload()).unwrap();
        assert!(header.ttl() == 63 && header.checksum_is_valid());
        segment.stop_router(router).map(|_| ())
    });
}

#[test]
fn broken_and_expired_packets_end_at_darkstar() {
    on_the_segment("1999-drops", |segment| {
        let router = segment.start_router(&["--stats=60"])?;
        let capture = segment.tsb.capture_with("eth0", &["-Q", "in", "tcp"])?;
        let mut broken = click1999::segment(&ZEUS, &TSB, 64);
        broken[24] ^= 1;
        let (expired, good) = (click1999::segment(&ZEUS, &TSB, 1), click1999::segment(&ZEUS, &TSB, 2));
        segment.zeus.transmit("eth0", &[broken, expired, good])?;
        let frames = capture.wait_for(1, SOON)?;
        assert_eq!(frames.len(), 1, "only the good one arrives");
        assert_eq!(Ipv4::new(&frames[0].bytes[14..]).unwrap().ttl(), 1);
        let report = segment.stop_router(router)?.stderr;
        assert!(report.contains("bad-checksum 1") && report.contains("ttl-expired 1"), "{report}");
        Ok(())
    });
}

#[test]
fn a_packet_waits_until_its_neighbor_has_answered() {
    on_the_segment("1999-arp", |segment| {
        // A router without neighbor entries: neither host has sent anything yet.
        let tsb = segment.tsb.capture_with("eth0", &["arp", "or", "tcp"])?;
        let device = format!("eth0={INTERFACE}");
        let words = ["run", "-e", artery_rig::conf::CLICK_1999, "--device", &device];
        let mut router = segment.darkstar.command([artery()?]).args(words).spawn()?;
        // It says nothing when it starts, so packets are sent until one is there.
        let held = click1999::segment(&ZEUS, &TSB, 64);
        let arrived = (0..50).any(|_| {
            let sent = segment.zeus.transmit("eth0", std::slice::from_ref(&held));
            sent.is_ok() && tsb.wait_for(3, Duration::from_millis(100)).is_ok()
        });
        assert!(arrived, "{}\n{}", tsb.text()?, router.stderr_so_far());
        // Before the router is there, the segment may flood what zeus sends.
        let mut frames = tsb.frames();
        frames.retain(|frame| frame.bytes[..6] != DARKSTAR.mac.0);
        let query = arp_request(DARKSTAR.mac, DARKSTAR.ip, TSB.ip).bytes();
        assert_eq!(frames[0].bytes[..query.len()], query, "{}", tsb.text()?);
        let mut forwarded = held;
        assert_eq!(click1999::forward(&mut forwarded, &Neighbors::of(&[TSB])), Verdict::Send);
        assert_eq!(sent_to(&frames, &TSB).first(), Some(&forwarded.as_slice()), "{}", tsb.text()?);
        assert!(!router.stop(SOON)?.stderr.contains("panicked"));
        Ok(())
    });
}

#[test]
fn what_is_not_to_be_forwarded_reaches_darkstars_host() {
    on_the_segment("1999-host", |segment| {
        let router = segment.start_router(&[])?;
        for host in [&segment.zeus, &segment.tsb] {
            let report = host.ping(&DARKSTAR.ip.to_string(), 5)?;
            assert_eq!((report.received, report.duplicates), (5, 0), "{}", report.text);
        }
        let known = segment.zeus.neighbors()?;
        let darkstar = known.iter().find(|neighbor| neighbor.address.to_string() == DARKSTAR.ip.to_string());
        assert_eq!(darkstar.and_then(|neighbor| neighbor.mac.clone()), Some(DARKSTAR.mac.to_string()));
        segment.stop_router(router).map(|_| ())
    });
}

/// What the configuration sends, given frames to read.
fn routed(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut writer = PcapWriter::create(&path("in"), PcapOptions::default()).unwrap();
    frames.iter().for_each(|frame| writer.write(Time::ZERO, 0, frame).unwrap());
    writer.flush().unwrap();
    drop(writer);
    let read = format!("FromDump({}, STOP true)", path("in"));
    let text = click1999::with_ends(&read, &format!("ToDump({})", path("out")), "Discard");
    // The driver gives the queue time to run empty.
    let text = text + "DriverManager(wait_stop, wait_time 0.05)";
    let settings = RouterSettings { simulated: Some(Time::ZERO), ..RouterSettings::default() };
    checked("1999", &text).unwrap().build(settings).unwrap().start().wait().unwrap();
    let mut reader = PcapReader::open(&path("out")).unwrap();
    std::iter::from_fn(|| reader.next_record().unwrap().map(|(_, bytes)| bytes.to_vec())).collect()
}

#[test]
fn in_memory_it_asks_holds_and_forwards_as_the_function_that_does_the_same() {
    let reply = |station: &TestStation| {
        artery_wire::build::arp_reply(station.mac, station.ip, DARKSTAR.mac, DARKSTAR.ip).bytes()
    };
    let echo = ether(DARKSTAR.mac, ZEUS.mac).ip4(icmp_echo(ZEUS.ip, TSB.ip, 1, 1)).bytes();
    let mut broken = click1999::segment(&ZEUS, &TSB, 64);
    broken[24] ^= 1;
    let held = click1999::segment(&TSB, &ZEUS, 64);
    let to_host = click1999::segment(&ZEUS, &DARKSTAR, 64);
    let frames = [
        held.clone(),
        reply(&ZEUS),
        reply(&TSB),
        broken,
        echo.clone(),
        to_host,
        click1999::segment(&ZEUS, &TSB, 1),
    ];
    let forwarded = |frame: &Vec<u8>| {
        let mut frame = frame.clone();
        assert_eq!(click1999::forward(&mut frame, &Neighbors::of(&[ZEUS, TSB])), Verdict::Send);
        frame
    };
    let sent = routed(&frames);
    let query = |station: &TestStation| arp_request(DARKSTAR.mac, DARKSTAR.ip, station.ip).bytes();
    let wanted = [query(&ZEUS), forwarded(&held), query(&TSB), forwarded(&echo)];
    let mut found: Vec<_> = sent.iter().map(|frame| frame[..frame.len().min(270)].to_vec()).collect();
    // Bursts keep the order on each path, not across paths.
    found.sort();
    let mut sorted = wanted.to_vec();
    sorted.sort();
    assert_eq!(found, sorted);
}
