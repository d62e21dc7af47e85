//! What a process that maps a socket's rings can write into them.
use super::*;

/// Maps a socket's receive ring, as any process with its descriptor can.
fn overwrite(rx: &XdpRx, change: impl FnOnce(&rings::Peer<2>)) {
    let fd = rx.fd().unwrap();
    change(&rings::Peer::map(fd, libc::XDP_PGOFF_RX_RING as u64, offsets(fd).rx, 64));
}

fn offsets(socket: BorrowedFd<'_>) -> libc::xdp_mmap_offsets {
    let none = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let none = libc::xdp_mmap_offsets { rx: none, tx: none, fr: none, cr: none };
    sys::option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, none).unwrap()
}

/// The second word of an entry with this length.
fn bytes(len: u32) -> u64 {
    let [a, b, c, d] = len.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

#[test]
fn whoever_overwrites_a_ring_breaks_it_and_nothing_else() {
    on_a_cable(|pool| {
        let port = open("left", &XdpSettings { ring: 64, ..settings(Attach::Best) }, pool);
        let mut rx = port.rx(0, &RxSettings::default()).unwrap();
        let mut got = Batch::default();
        // An address of a frame that was not lent, addresses of no frame, and lengths that pass the end of
        // the frame.
        let free = pool.alloc_packet().unwrap();
        let not_lent = u64::from(pool.frame_of(&free).unwrap()) * 2048;
        let entries = [(not_lent, 60), (u64::MAX, 60), (4096 * 2048, 60), (256, 2000), (256, u32::MAX)];
        overwrite(&rx, |peer| peer.produce(&entries.map(|(address, len)| [address, bytes(len)])));
        assert_eq!(rx.receive(pool, 64, &mut got), Ok(0));
        assert_eq!((got.len(), rx.counters().malformed), (0, 5));
        overwrite(&rx, |peer| peer.set_producer(0x8000_0000));
        let broken = rx.receive(pool, 64, &mut got).unwrap_err();
        assert!(matches!(broken, DeviceError::Broken { .. }), "{broken}");
        assert_eq!(rx.receive(pool, 64, &mut got), Err(broken), "it stays so");
        assert_eq!(rx.counters().malformed, 6, "it counts once");
        drop((port, rx, free));
        assert_eq!(free_frames(pool), 4096);
    });
}

#[test]
fn a_queue_whose_ring_broke_is_the_hosts_again() {
    in_namespace(|| {
        let (pool, host) = (pool(), neighbor());
        let port = open("left", &XdpSettings { ring: 64, ..settings(Attach::Best) }, pool);
        let mut rx = port.rx(0, &RxSettings::default()).unwrap();
        assert!(!host.pings("10.1.0.1"));
        overwrite(&rx, |peer| peer.set_producer(0x8000_0000));
        let broken = rx.receive(pool, 64, &mut Batch::default()).unwrap_err();
        assert!(is_answered(&host));
        drop(rx);
        assert_eq!(port.rx(0, &RxSettings::default()).err(), Some(broken), "it is not opened again");
        assert!(is_answered(&host));
    });
}

#[test]
fn frames_that_come_back_without_having_been_sent_are_counted() {
    on_a_cable(|pool| {
        let port = open("left", &XdpSettings { ring: 64, ..settings(Attach::Best) }, pool);
        let mut tx = port.tx(0).unwrap();
        let (fd, place) = (tx.fd().unwrap(), libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        rings::Peer::map(fd, place, offsets(fd).cr, 64).produce(&[[256], [u64::MAX]]);
        assert_eq!(tx.transmit(&mut Batch::default()), Ok(0));
        assert_eq!((tx.malformed(), tx.counters().refused, tx.counters().packets), (2, 2, 0));
    });
}
