//! A switch under test as text, and the frames that go round in it.
//!
//! Half of the stations are where frames come from, and are learned from them; the other half are where frames go, and
//! are made known before. Each frame is from one and to one, both drawn at random.

use super::case::Case;
use super::network::{FRAME, Frame, name, placed};
use artery_table::synthetic::Random;
use artery_wire::EtherAddr;
use artery_wire::build::{ether, ip4};

const SEED: u64 = 7;
/// Stations that are made known by one write.
const TOGETHER: u32 = 500;

/// A station: the first two bytes say on which side it is.
fn station(side: u8, number: u32) -> EtherAddr {
    let [a, b, c, d] = number.to_be_bytes();
    EtherAddr([2, side, a, b, c, d])
}
const HERE: u8 = 1;
const THERE: u8 = 2;

/// Stations on each side.
fn of_side(stations: u32) -> u32 {
    (stations / 2).max(1)
}

/// The configuration.
pub(super) fn text(case: &Case, stations: u32) -> String {
    let limit = case.limit.map(|limit| format!(", {limit}")).unwrap_or_default();
    let switch = |n: usize| {
        format!(
            "receive{n} :: FromDevice(in{n}, SNIFFER false, ACTIVE false) -> play{n} :: Play({n}{limit})
    -> forward{n} :: Veb(PORT in{n}, PORT out{n}, MAXADDR {}); Idle -> [1] forward{n};
forward{n} -> odd{n} :: Counter -> Discard;
forward{n}[1] -> send{n} :: ToDevice(out{n});\n",
            2 * of_side(stations)
        )
    };
    (0..case.workers).map(switch).collect::<String>() + &placed(case)
}

/// What is to be made known in the run: handlers, and what to write to them.
pub(super) fn known(case: &Case, stations: u32) -> Vec<(String, String)> {
    let numbers: Vec<u32> = (0..of_side(stations)).collect();
    let words = |worker: usize, numbers: &[u32]| {
        let word = |number: &u32| format!("static {} {} ", name("out", worker), station(THERE, *number));
        (format!("{}.ifconfig", name("forward", worker)), numbers.iter().map(word).collect::<String>())
    };
    let of = |worker| {
        numbers.chunks(TOGETHER as usize).map(move |numbers| words(worker, numbers)).collect::<Vec<_>>()
    };
    (0..case.workers).flat_map(of).collect()
}

/// The frames of a worker.
pub(super) fn frames(stations: u32, count: usize, worker: usize) -> Vec<Frame> {
    let mut random = Random::new(SEED + worker as u64);
    let mut any = |side| station(side, random.below(of_side(stations).into()) as u32);
    let frame = |_| {
        let bytes = ether(any(THERE), any(HERE)).ip4(ip4().udp(1, 2).payload([0; 18])).bytes();
        Frame(std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0)))
    };
    (0..count).map(frame).collect()
}

/// Whether a frame is as it was sent.
pub(super) fn was_switched(frame: &[u8; FRAME]) -> bool {
    frame[..2] == [2, THERE] && frame[6..8] == [2, HERE] && frame[12..14] == [8, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_from_one_side_to_the_other() {
        let frames = frames(10, 300, 0);
        assert!(frames.len() == 300 && frames.iter().all(|frame| was_switched(&frame.0)));
        let sources: std::collections::HashSet<_> =
            frames.iter().map(|frame| frame.0[6..12].to_vec()).collect();
        assert_eq!(sources.len(), 5);
        let mut back = frames[0].0;
        back[1] = HERE;
        assert!(!was_switched(&back));
    }
}
