//! Any frames at any times on the ports of a bridge: read or refused, and the bridge comes to an end with
//! each.
#![no_main]
use artery_l2::stp::{Action, Bridge, Link, PortSettings, Settings};
use artery_wire::{Bpdu, EtherAddr};
use libfuzzer_sys::fuzz_target;
use std::time::Duration;

const PORTS: u16 = 3;

fuzz_target!(|data: &[u8]| {
    if let Ok(bpdu) = Bpdu::in_frame(data) {
        assert_eq!(Bpdu::in_frame(&bpdu.build_frame(EtherAddr([2; 6]))), Ok(bpdu));
    }
    let (mut bridge, mut now) = (bridge(), Duration::ZERO);
    for chunk in data.chunks(38) {
        let [port, pause, bpdu @ ..] = chunk else { return };
        now += Duration::from_millis(u64::from(*pause).pow(2));
        let mut actions = Vec::new();
        bridge.tick(now, &mut actions);
        let _ = bridge.receive_frame(1 + u16::from(*port) % PORTS, &frame(bpdu), now, &mut actions);
        assert!(actions.len() < 100 && actions.iter().all(is_of_a_port));
    }
    assert_eq!(bridge.view().unsettled, 0);
});

fn bridge() -> Bridge {
    let address = |last| EtherAddr([2, 0, 0, 0, 0, last]);
    let mut bridge =
        Bridge::new(address(0), Settings::default()).expect("the defaults are within the bounds");
    for port in 1..=PORTS {
        let settings = PortSettings { root_guard: port == 3, ..PortSettings::default() };
        bridge.add_port(port, address(port as u8), settings).expect("there is no such port yet");
        bridge.link_up(port, Link::GIGABIT, Duration::ZERO, &mut Vec::new()).expect("there is such a port");
    }
    bridge
}

/// The BPDU in a frame that says so.
fn frame(bpdu: &[u8]) -> Vec<u8> {
    let length = (3 + bpdu.len() as u16).to_be_bytes();
    [&Bpdu::GROUP.0[..], &[2; 6], &length, &[0x42, 0x42, 0x03], bpdu].concat()
}

fn is_of_a_port(action: &Action) -> bool {
    let (Action::Send { port, .. } | Action::State { port, .. } | Action::Flush { port }) = action;
    (1..=PORTS).contains(port)
}
